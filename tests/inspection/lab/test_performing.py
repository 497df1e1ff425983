"""Performing: each trial once, kept the moment it is done; a run that was broken off goes on; all cores, one thread."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from plait.inspection.lab import Experiment, Finding, Result, Trial
from plait.inspection.lab.experiments import experiment
from plait.inspection.lab.keeping import Kept, identity
from plait.inspection.lab.performing import perform
from plait.pages.words import Words

WORDS = Words({key: {"en": key, "zh": key} for key in ("title", "claim", "explained")})


class Calls(list[str]):
    """Which trials were made; those named in ``failing`` break off."""

    failing: frozenset[str] = frozenset()

    def make(self, name: str) -> int:
        if name in self.failing:
            raise KeyboardInterrupt
        self.append(name)
        return len(name)


def summed(found: dict[str, int]) -> Result:
    total = sum(found.values())
    return Result(findings=(Finding(id="", what="x", claimed="", measured=str(total), holds=True, values=(total,)),))


def made(calls: Calls, **trials: tuple[str, ...]) -> list[Experiment]:
    """Experiments with trials of these names, the later the longer."""
    return [
        Experiment(
            name=name,
            words=WORDS,
            run=summed,
            trials=tuple(
                Trial(name=one, make=partial(calls.make, one), seconds=float(i + 1)) for i, one in enumerate(ones)
            ),
        )
        for name, ones in trials.items()
    ]


def totals(experiments: list[Experiment], kept: Kept) -> dict[str, float]:
    steps = list(perform(experiments, kept, workers=1))
    assert sum(step.seconds for step in steps) == sum(one.seconds for one in experiments)
    return {step.experiment.name: step.result.findings[0].values[0] for step in steps if step.result}


def test_each_trial_once_and_each_experiment_when_its_own_are_there(tmp_path: Path):
    calls = Calls()
    experiments = made(calls, quick=(), slow=("a", "bb"), slower=("ccc",))
    assert totals(experiments, Kept(tmp_path)) == {"quick": 0, "slow": 3, "slower": 3}
    assert sorted(calls) == ["a", "bb", "ccc"]


def test_what_was_done_before_it_broke_off_is_not_done_again(tmp_path: Path):
    calls = Calls()
    calls.failing = frozenset({"a"})
    experiments = made(calls, slow=("a", "bb", "ccc"))
    with pytest.raises(KeyboardInterrupt):
        list(perform(experiments, Kept(tmp_path), workers=1))
    assert calls == ["ccc", "bb"]  # the longest first
    calls.failing = frozenset()
    assert totals(experiments, Kept(tmp_path)) == {"slow": 6}
    assert calls == ["ccc", "bb", "a"]


def test_a_file_that_is_not_whole_counts_for_nothing(tmp_path: Path):
    calls, kept = Calls(), Kept(tmp_path)
    experiments = made(calls, slow=("a",))
    totals(experiments, kept)
    (file,) = tmp_path.rglob("*.json")
    file.write_text(file.read_text()[:-1] + "{")
    assert totals(experiments, kept) == {"slow": 1} and calls == ["a", "a"]
    assert json.loads(file.read_text()) == 1


def test_once_all_is_done_nothing_is_left_nor_of_other_code(tmp_path: Path):
    kept = Kept(tmp_path)
    totals(made(Calls(), slow=("a",), other=("bb",)), kept)
    (tmp_path / "0123456789abcdef" / "slow").mkdir(parents=True)
    kept.forget(["slow"])
    assert [path.name for path in tmp_path.iterdir()] == [identity()]
    assert [path.name for path in kept.folder.iterdir()] == ["other"]


def test_infinity_is_kept(tmp_path: Path):
    kept = Kept(tmp_path)
    kept.store("depth", "a", {"loss": float("inf")})
    assert kept.load("depth", "a") == {"loss": float("inf")}
    assert kept.load("depth", "b") is None


def test_a_trial_has_one_thread_and_leaves_the_rest_as_they_were(tmp_path: Path):
    before, seen = torch.get_num_threads(), []
    trial = Trial(name="a", make=lambda: seen.append(torch.get_num_threads()) or 1, seconds=1)
    one = Experiment(name="x", words=WORDS, run=summed, trials=(trial,))
    list(perform([one], Kept(tmp_path), workers=1))
    assert seen == [1] and torch.get_num_threads() == before


@pytest.mark.slow
def test_processes_find_what_one_does(tmp_path: Path):
    one = experiment("memory")
    steps = list(perform([one], Kept(tmp_path), workers=2))
    (result,) = (step.result for step in steps if step.result)
    assert result["F3"].holds
    alone = next(trial for trial in one.trials if trial.name == "facts").make()
    assert result["F3"].values == (alone["efficacy"], alone["paraphrase"], alone["neighbourhood"])
