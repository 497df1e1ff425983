"""What is concluded from trials: a claim holds or not by what was measured, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from plait.inspection.lab import Finding
from plait.inspection.lab.experiment import compared, number
from plait.inspection.lab.experiments import EXPERIMENTS, experiment
from plait.inspection.lab.seeds import spread
from plait.pages.words import LANGUAGES, plain
from tests.inspection.lab.pretended import results, trials

pytestmark = pytest.mark.slow  # experiments are run


def verdicts(name: str, found: dict[str, Any]) -> list[bool]:
    return [finding.holds for finding in experiment(name).run(found).findings]


def changed(name: str, trial: str, value: Any) -> list[bool]:
    """Verdicts where one trial found something else."""
    return verdicts(name, {**trials(name), trial: value})


@pytest.mark.parametrize("name", ["extrapolation", "one-tower", "memory"])
def test_what_is_as_claimed_holds(name: str):
    expected = [finding.id != "" or name != "memory" for finding in experiment(name).run(trials(name)).findings]
    assert verdicts(name, trials(name)) == expected  # of memory: agreement falls with depth in what is pretended


def test_depth_by_what_trained():
    *placements, wrong = verdicts("depth", trials("depth"))
    assert placements == [True] * 3 and not wrong
    assert changed("depth", "post-calm-48-25", {"loss": 4.1})[1] is False
    assert changed("depth", "deepnorm-calm-6-25", {"loss": float("inf")})[2] is True  # it learns without warm-up
    never = {name: {"loss": 5.1} for name in trials("depth") if name.startswith("pre-calm-48")}
    assert verdicts("depth", {**trials("depth"), **never})[0] is False


def test_extrapolation_by_the_longest_row():
    fine = verdicts("extrapolation", trials("extrapolation"))
    for trial, value, place in (
        ("learned-1", {"learned": [2.9] * 4}, 0),
        ("sinusoidal-0", {"sinusoidal": [2.9, 2.9, 2.9, 1.0]}, 1),
        ("none-0", {"none": [2.9, 2.9, 2.9, 4.5]}, 5),
        ("rope-1", {name: [2.9, 3.0, 3.1, 3.2] for name in ("rope", "linear", "dynamic", "yarn", "llama3")}, 8),
    ):
        other = changed("extrapolation", trial, value)
        assert fine[place] and not other[place]
    both = {name: {"alibi": [2.8, 2.9, 3.0, 3.3]} for name in ("alibi-0", "alibi-1")}
    assert fine[3] and not verdicts("extrapolation", {**trials("extrapolation"), **both})[3]


def test_tying_is_judged_by_its_loss():
    assert verdicts("tying", trials("tying"))[-1]
    worse = {name: {"loss": 2.5 + 0.2 * name.startswith("tied")} for name in trials("tying")}
    assert not verdicts("tying", worse)[-1]


def test_a_ladder_helps_where_it_beats_the_spread():
    def climbed(top: float) -> bool:
        losses = {
            name: {"loss": top if name.startswith("llama-grouped") else 2.5, "steps": 9} for name in trials("ladder")
        }
        return verdicts("ladder", losses)[0]

    assert climbed(2.4) and not climbed(2.5) and not climbed(2.6)


def test_an_edit_that_spills_over_does_not_hold():
    spilt = {**trials("memory")["facts"], "neighbourhood": 0.5}
    assert not changed("memory", "facts", spilt)[-1]


def test_every_word_is_said_in_both_languages():
    for name, result in results().items():
        texts: list[Any] = [experiment(name).title, *(figure.title for figure in result.figures)]
        texts += [text for one in result.findings for text in (one.what, one.claimed, one.measured)]
        for text in texts:
            for language in LANGUAGES:
                said = plain(text, language)
                assert said and "{" not in said, (name, said)


def test_every_experiment_has_its_words_figures_and_a_name_of_its_own():
    assert len({one.name for one in EXPERIMENTS}) == len(EXPERIMENTS) == 16
    for one in EXPERIMENTS:
        assert {"title", "claim", "explained"} <= set(one.words)
        assert len({trial.name for trial in one.trials}) == len(one.trials)
        assert results()[one.name].figures


def test_a_name_that_is_none_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="'ladders': there is no such experiment; did you mean 'ladder'"):
        experiment("ladders")


@pytest.mark.parametrize(
    ("value", "digits", "said"),
    [
        (8 / 3, 4, "2.6667"),
        (5.0000000001, 4, "5"),
        (-0.7176, 4, "-0.7176"),
        (1_048_576, 4, "1,048,576"),
        (3.9e-15, 4, "< 1e-9"),
        (1.1e-7, 4, "< 1e-6"),
        (0, 4, "0"),
        (float("inf"), 2, "inf"),
    ],
)
def test_numbers_as_they_are_read(value: float, digits: int, said: str):
    assert number(value, digits) == said


def test_numbers_beside_numbers():
    assert compared("N1", "x", [1.0, 2.0], [1.00004, 2.0]).holds
    assert not compared("N1", "x", [1.0, 2.0], [1.00006, 2.0]).holds
    assert not compared("N1", "x", [1.0, 2.0], [1.0]).holds
    assert compared("N1", "x", [1.0], [0.9999499917]).measured == "0.999950"  # as near as can be, and not the same


def test_a_claim_that_circulates_goes_by_its_id():
    def of(id: str) -> bool:
        return Finding(id=id, what="", claimed="", measured="", holds=True).circulates

    assert of("W1") and not of("N1") and not of("")


def test_a_spread():
    one = spread([3.0, 1.0, 2.0])
    assert (one.mean, one.low, one.high, one.said(1)) == (2.0, 1.0, 3.0, "2.0 (1.0 – 3.0)")
