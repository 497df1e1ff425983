from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.checkpoint import PlaitNotice
from plait.training.evaluation import evaluate
from plait.training.loop import train
from plait.training.progress import Step
from plait.training.states import State, StateError, read_state, saved_states
from tests.conftest import ROOT
from tests.training.making import Samples, loss, model, recipe, same, weights

NOISY = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}


def other():
    """A model with other weights: what a resumed run starts from must not count."""
    fresh = model()
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.add_(0.5)
    return fresh


def same_state(a: State, b: State) -> bool:
    parts = ("model", "optimizer", "averages")
    return all(same(dict(getattr(a, part)), dict(getattr(b, part))) for part in parts)


def broken_at(stop: int, settings: Any, out: Path, **named: Any) -> tuple[list[Step], torch.nn.Module]:
    """A run that is left after step ``stop`` and resumed with a new model: its steps, and that model."""
    steps = []
    for step in train(model(), Samples(), settings, loss=loss, out=out, **named):
        steps.append(step)
        if step.index == stop:
            break
    fresh = other()
    torch.manual_seed(stop)  # whatever the process drew before
    with pytest.warns(PlaitNotice, match=f"going on after step {stop}"):
        rest = train(fresh, Samples(), settings, loss=loss, out=out, resume=True, **named)
    return [*steps, *rest], fresh


@pytest.mark.parametrize("stop", [3, 5, 7])  # 5: the edge of an epoch
@pytest.mark.parametrize(
    "sections",
    [
        {"run": {}},
        {"run": {"average": "ema", "ema_decay": 0.7}, "optimizer": {"kind": "muon"}},
        {
            "run": {"average": "last", "average_every": 2, "average_last": 3},
            "schedule": {"kind": "cosine", "warmup": 4},
        },
    ],
    ids=["adamw", "muon", "last"],
)
def test_tr9_resumed_is_never_stopped(tmp_path: Path, stop: int, sections: dict[str, Any]) -> None:
    settings = recipe(**{**sections, "run": {**NOISY, **sections["run"], "steps": 10, "save_every": 1}})
    whole = model()
    steps = list(train(whole, Samples(), settings, loss=loss, out=tmp_path / "whole"))
    again, resumed = broken_at(stop, settings, tmp_path / "broken")
    assert [(s.index, s.loss, s.gradient_norm, s.lr) for s in steps] == [
        (s.index, s.loss, s.gradient_norm, s.lr) for s in again
    ]
    assert same(weights(whole), weights(resumed))
    ends = [read_state(tmp_path / name / "states" / "step-000010") for name in ("whole", "broken")]
    assert same_state(*ends)


def test_tr12_the_learning_rate_goes_on(tmp_path: Path) -> None:
    settings = recipe(run={"steps": 10, "save_every": 1}, schedule={"kind": "linear", "warmup": 4})
    unbroken = [step.lr for step in train(model(), Samples(), settings, loss=loss)]
    assert unbroken == pytest.approx([0.01 * x for x in (0, 0.25, 0.5, 0.75, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6)])
    for stop in (2, 4, 7):  # in the warm-up, at its edge, after it
        steps, _ = broken_at(stop, settings, tmp_path / str(stop))
        assert [step.lr for step in steps] == unbroken


def test_tr11_the_optimizers_memory_is_applied(tmp_path: Path) -> None:
    broken_at(2, recipe(run={"steps": 3, "save_every": 1, "keep": 3}), tmp_path)
    two, three = (read_state(tmp_path / "states" / f"step-00000{step}").optimizer for step in (2, 3))
    name = "embedding.tokens.weight"
    assert (float(two[f"{name}:step"]), float(three[f"{name}:step"])) == (2.0, 3.0)
    share = 0.95 * two[f"{name}:exp_avg_sq"] / three[f"{name}:exp_avg_sq"]  # the rest is the last gradient's
    assert two[f"{name}:exp_avg"].any() and float(share.nan_to_num().max()) > 0.5


def test_ld18_a_tied_model_goes_on(tmp_path: Path) -> None:
    settings = recipe(run={"steps": 3, "save_every": 2})
    whole = model(tied=True)
    list(train(whole, Samples(), settings, loss=loss))
    _, resumed = broken_at(2, settings, tmp_path)
    assert same(weights(whole), weights(resumed))
    assert "head.output.weight" not in read_state(tmp_path / "states" / "step-000003").model


def test_nu4_masters_are_kept_over_resume(tmp_path: Path) -> None:
    """Steps far below what bfloat16 can tell from 1 add up, before the stop and after it."""
    settings = recipe(
        run={"steps": 6, "save_every": 3, "precision": "pure_bfloat16"}, optimizer={"lr": 1e-4, "weight_decay": 0.0}
    )
    whole = model()
    list(train(whole, Samples(), settings, loss=loss, out=tmp_path / "whole"))
    _, resumed = broken_at(3, settings, tmp_path / "broken")
    ends = [read_state(tmp_path / name / "states" / "step-000006") for name in ("whole", "broken")]
    assert same_state(*ends) and same(weights(whole), weights(resumed))
    norm = ends[1].model["decoder.norm.weight"]
    assert norm.dtype == torch.float32 and 1e-4 < float((norm - 1).abs().max()) < 1e-3


def test_early_stopping_goes_on_counting(tmp_path: Path) -> None:
    settings = recipe(run={"steps": 100, "save_every": 1}, evaluate={"every": 1, "patience": 4})
    values = iter([3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    steps, _ = broken_at(3, settings, tmp_path, measure=lambda: {"loss": next(values)})
    assert steps[-1].stop == "patience" and steps[-1].index == 5 and [s.best for s in steps] == [True] + [False] * 4
    with pytest.warns(PlaitNotice):
        assert list(train(other(), Samples(), settings, loss=loss, out=tmp_path, resume=True)) == []


def test_a_run_that_is_done_makes_no_step_and_has_its_weights(tmp_path: Path) -> None:
    settings, whole, fresh = recipe(run={"average": "ema"}), model(), other()
    list(train(whole, Samples(), settings, loss=loss, out=tmp_path))
    with pytest.warns(PlaitNotice, match="going on after step 10"):
        assert list(train(fresh, Samples(), settings, loss=loss, out=tmp_path, resume=True)) == []
    assert same(weights(whole), weights(fresh))


def test_resume_without_a_state_begins(tmp_path: Path) -> None:
    steps = list(train(model(), Samples(), recipe(run={"steps": 2}), loss=loss, out=tmp_path, resume=True))
    assert [step.index for step in steps] == [1, 2]


def test_what_rounds_otherwise_is_said(tmp_path: Path) -> None:
    settings = recipe(run={"steps": 2, "save_every": 1})
    next(train(model(), Samples(), settings, loss=loss, out=tmp_path))
    record = tmp_path / "states" / "step-000001" / "state.json"
    written = json.loads(record.read_text())
    written["counts"] |= {"world": 4, "of a later plait": 1}
    record.write_text(json.dumps(written))
    with pytest.warns(PlaitNotice) as said:
        assert len(list(train(other(), Samples(), settings, loss=loss, out=tmp_path, resume=True))) == 1
    assert "world: 4 before and 1 now; the run goes on, but rounds otherwise" in str(said[1].message)


def test_another_model_is_refused(tmp_path: Path) -> None:
    settings = recipe(run={"steps": 1})
    list(train(model(), Samples(), settings, loss=loss, out=tmp_path))
    with pytest.warns(PlaitNotice), pytest.raises(StateError, match="resume with the model that was trained"):
        train(model(n_decoder_layers=3), Samples(), settings, loss=loss, out=tmp_path, resume=True)


# Signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_step_and_saves(tmp_path: Path, name: str) -> None:
    before, calls = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], []

    def interrupted(m: torch.nn.Module, batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.Signals[name])
        return loss(m, batch)

    fresh, settings = model(), recipe(run=NOISY)
    with pytest.warns(PlaitNotice, match=rf"{name}: stopped after step 3, saved as .*step-000003; resume goes on"):
        steps = list(train(fresh, Samples(), settings, loss=interrupted, out=tmp_path))
    assert [step.stop for step in steps] == [None, None, name] and steps[-1].saved == saved_states(tmp_path / "states")[
        0
    ]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    whole, fresh = model(), other()
    list(train(whole, Samples(), settings, loss=loss))
    with pytest.warns(PlaitNotice, match="going on after step 3"):
        list(train(fresh, Samples(), settings, loss=loss, out=tmp_path, resume=True))
    assert same(weights(whole), weights(fresh))


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    def interrupted(m: torch.nn.Module, batch: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return loss(m, batch)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(train(model(), Samples(), recipe(), loss=interrupted, out=tmp_path))
    assert signal.getsignal(signal.SIGINT) == before


def test_leaving_the_loop_gives_the_signals_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    fresh = model()
    run = train(fresh, Samples(), recipe(), loss=loss, measure=lambda: evaluate(fresh, Samples(), loss))
    next(run)
    assert signal.getsignal(signal.SIGTERM) != before
    run.close()
    assert signal.getsignal(signal.SIGTERM) == before


# Killed


def killed(folder: Path, kills: int, seed: int) -> list[int]:
    command = [sys.executable, "-m", "tests.training.killing", str(folder), str(kills), str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_at_three_moments_a_run_loses_nothing(tmp_path: Path) -> None:
    assert len(killed(tmp_path, 3, seed=0)) == 3


@pytest.mark.slow
def test_killed_at_twenty_moments_a_run_loses_nothing(tmp_path: Path) -> None:
    assert len(killed(tmp_path, 20, seed=1)) == 20
