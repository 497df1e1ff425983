from __future__ import annotations

import gc
import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plait.data.batch import Batch
from plait.training.evaluation import evaluate
from plait.training.loop import train
from plait.training.plain import Plain
from plait.training.states import saved_states
from plait.training.stepping import TrainingError
from tests.training.making import Samples, furthest, loss, model, recipe, same, weights


def trained(micro: int = 1, *, dtype: torch.dtype = torch.float64, rows: int = 4, **sections) -> tuple[dict, list]:
    """Weights after a run, and its steps."""
    fresh = model(dtype)
    steps = list(train(fresh, Samples(rows=rows, micro=micro), recipe(**sections), loss=loss))
    return weights(fresh), steps


@pytest.mark.parametrize("micro", [2, 3, 4])  # 3 of 4 rows: parts of unequal size, down to the tail
def test_law_5_micro_batches_are_one_batch(micro: int) -> None:
    whole, steps = trained()
    parts, again = trained(micro)
    assert furthest(whole, parts) < 1e-12
    assert [step.targets for step in steps] == [step.targets for step in again]
    assert all(math.isclose(a.loss, b.loss, rel_tol=1e-12) for a, b in zip(steps, again, strict=True))
    assert len({step.targets for step in steps}) > 1  # steps of unequal size, or a wrong divisor would not show


class Uneven(Samples):
    """A step of one micro-batch with one target and one with nine."""

    def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        tokens = torch.arange(10).remainder(7).view(1, 10)
        one, nine = torch.full((2, 1, 10), -100)
        one[0, 0], nine[0, 1:] = 3, torch.arange(1, 10)
        if self.micro == 1:
            return [Batch(tokens=tokens.repeat(2, 1), targets=torch.cat([one, nine]))]
        return [Batch(tokens=tokens, targets=one), Batch(tokens=tokens, targets=nine)]


def test_tr1_micro_batches_count_by_their_targets() -> None:
    found = []
    for micro in (1, 2):
        fresh = model(torch.float64)
        (step,) = train(fresh, Uneven(micro=micro), recipe(run={"steps": 1}), loss=loss)
        found.append((weights(fresh), step.loss, step.gradient_norm))
    assert furthest(found[0][0], found[1][0]) < 1e-12
    assert found[0][1:] == pytest.approx(found[1][1:], rel=1e-12)


def test_tr2_the_gradient_does_not_grow_with_accumulation() -> None:
    norms = [[step.gradient_norm for step in trained(micro)[1]] for micro in (1, 2, 4)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-10) and norms[0] == pytest.approx(norms[2], rel=1e-10)


def test_tr13_the_schedule_moves_once_a_step() -> None:
    schedule = {"kind": "linear", "warmup": 2}
    _, steps = trained(4, schedule=schedule, run={"steps": 8}, optimizer={"lr": 1.0, "clip": 0.1})
    shares = [0, 1 / 2, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert [step.lr for step in steps] == pytest.approx(shares)


class Scaled(Plain):
    scale = 1024.0


def test_tr18_gradients_are_unscaled_and_then_clipped() -> None:
    found = []
    for precision in (Plain, Scaled):
        fresh = model(torch.float64)
        # SGD shows the size of a gradient, which AdamW hides: its memory is read instead
        run = train(
            fresh, Samples(), recipe(run={"steps": 1}, optimizer={"clip": 0.01}), loss=loss, precision=precision(fresh)
        )
        (step,) = run
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in fresh.parameters() if p.grad is not None))
        found.append((norm, step.gradient_norm))
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[0][0] == pytest.approx(0.01, rel=1e-4) and found[0][1] > 0.1


def test_a_parameter_that_takes_no_part_has_a_gradient_of_zero() -> None:
    fresh = model()
    fresh.spare = nn.Linear(2, 2)
    list(train(fresh, Samples(), recipe(run={"steps": 1}, optimizer={"weight_decay": 0.0}), loss=loss))
    assert fresh.spare.weight.grad is not None and not fresh.spare.weight.grad.any()


# Noise


def test_noise_belongs_to_seed_and_step_and_leaves_the_callers_alone() -> None:
    run = {"steps": 3, "dropout": 0.1}
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first, _ = trained(run=run)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(first, trained(run=run)[0])
    assert not same(first, trained(run={**run, "seed": 1})[0])
    assert not same(first, trained(run={"steps": 3})[0])


def test_every_step_has_other_noise() -> None:
    class One(Samples):
        def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
            return super().step(0)

    settings = recipe(run={"steps": 4, "dropout": 0.3}, optimizer={"lr": 0.0})
    losses = [step.loss for step in train(model(), One(), settings, loss=loss)]
    assert len(set(losses)) == 4


# Memory


def test_tr23_memory_is_flat() -> None:
    """Losses are summed as numbers, without the graphs they came from."""
    small = nn.Sequential(nn.Embedding(11, 3), nn.Linear(3, 11))
    alive = []

    def plain(m: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        return F.cross_entropy(
            m(batch.tokens).flatten(0, 1), batch.targets.flatten(), reduction="sum"
        ), batch.real.sum()

    for step in train(small, Samples(), recipe(run={"steps": 200}), loss=plain):
        if step.index in (20, 200):
            gc.collect()
            alive.append(sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()))
    assert alive[0] == alive[1]


# Ends


def test_a_nan_stops_with_the_tensor_and_the_last_state_stands(tmp_path: Path) -> None:
    fresh = model()
    run = train(fresh, Samples(), recipe(run={"save_every": 2}), loss=loss, out=tmp_path)
    for step in run:
        if step.index == 5:
            before = weights(fresh)
            with torch.no_grad():
                fresh.decoder.layers[1].ffn.down.weight[0, 0] = math.nan
            break_here = weights(fresh)
            with pytest.raises(
                TrainingError, match=r"^step 6: the loss is nan; the weights of decoder.layers.1.ffn.down"
            ):
                next(run)
            break
    assert not same(before, break_here) and [path.name for path in saved_states(tmp_path / "states")] == [
        "step-000004",
        "step-000002",
    ]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("forward", "step 3: the loss is nan; decoder.layers.1.attention.output was the first"),
        (
            "backward",
            "step 3: the gradient's norm is nan; every value was finite, and the gradient of decoder.layers.1.",
        ),
    ],
)
def test_the_first_tensor_that_breaks_is_named(place: str, words: str) -> None:
    fresh = model()
    run = train(fresh, Samples(), recipe(), loss=loss)
    for _ in range(2):
        next(run)
    good = weights(fresh)

    def breaks(part: nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
        if place == "forward":
            return output * math.nan
        if output.requires_grad:  # not where the step is looked into again
            output.register_hook(lambda gradient: gradient * math.nan)
        return output

    hook = fresh.decoder.layers[1].attention.output.register_forward_hook(breaks)
    with pytest.raises(TrainingError, match=f"^{words}.*No state was saved"):
        next(run)
    hook.remove()
    assert same(good, weights(fresh))  # the broken step moved nothing


def test_an_explosion_stops() -> None:
    with pytest.raises(TrainingError, match=r"the loss exploded; it is .*, and was 2\.\d+ at the first step"):
        list(train(model(), Samples(), recipe(optimizer={"lr": 30.0}), loss=loss))


def test_squares_have_no_scale_to_explode_from() -> None:
    def rising(model: nn.Module, batch: Batch) -> tuple[torch.Tensor, int]:
        nats, count = loss(model, batch)
        return nats * 100.0 ** next(powers), count

    powers = itertools.count(-3)
    steps = list(train(model(), Samples(), recipe(objective={"kind": "values"}, run={"steps": 4}), loss=rising))
    assert steps[-1].loss > 1000 * steps[0].loss


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    class Breaks(Plain):
        def spread(self) -> None:
            with torch.no_grad():
                self.masters()["decoder.norm.weight"][0] = math.inf

    fresh = model()
    settings = recipe(run={"save_every": 1})
    with pytest.raises(TrainingError, match=r"^step 1: decoder.norm.weight is not finite after it, and is not saved"):
        next(train(fresh, Samples(), settings, loss=loss, out=tmp_path, precision=Breaks(fresh)))
    assert saved_states(tmp_path / "states") == []


def test_patience_ends_the_run_and_the_best_weights_stay(tmp_path: Path) -> None:
    fresh, seen = model(), {}
    values = iter([3.0, 2.0, math.nan, 2.0, 9.0])
    settings = recipe(run={"steps": 100, "keep": 1}, evaluate={"every": 2, "patience": 3})

    def measure() -> dict[str, float]:
        seen[len(seen)] = weights(fresh)
        return {"loss": next(values)}

    steps = list(train(fresh, Samples(), settings, loss=loss, measure=measure, out=tmp_path))
    assert (steps[-1].index, steps[-1].stop) == (10, "patience")
    assert [step.index for step in steps if step.best] == [2, 4]
    assert same(weights(fresh), seen[1]) and not same(seen[1], seen[4])
    assert [path.name for path in saved_states(tmp_path / "states")] == ["step-000010", "step-000004"]


def test_more_accuracy_is_better() -> None:
    values = iter([0.1, 0.3, 0.2, 0.4])
    settings = recipe(run={"steps": 4}, evaluate={"every": 1, "metrics": ("accuracy",)})
    steps = list(train(model(), Samples(), settings, loss=loss, measure=lambda: {"accuracy": next(values)}))
    assert [step.best for step in steps] == [True, True, False, True]


def test_the_average_is_what_is_judged_and_what_stays() -> None:
    fresh, seen = model(), []
    path: list[dict] = []

    def measure() -> dict[str, float]:
        seen.append(weights(fresh))
        return evaluate(fresh, Samples(), loss)

    settings = recipe(run={"average": "last", "average_last": 2, "average_every": 1}, evaluate={"every": 10})
    for _ in train(fresh, Samples(), settings, loss=loss, measure=measure):
        path.append(weights(fresh))
    mean = {name: (path[-1][name] + path[-2][name]) / 2 for name in path[-1]}
    assert furthest(mean, weights(fresh)) < 1e-7 and furthest(mean, seen[-1]) < 1e-7
    assert furthest(path[-1], mean) > 1e-4


def test_evaluation_changes_nothing() -> None:
    fresh, other = model(), model()
    settings = recipe(run={"dropout": 0.1, "average": "ema", "ema_decay": 0.5}, evaluate={"every": 1})
    for a, b in zip(
        train(fresh, Samples(), settings, loss=loss, measure=lambda: evaluate(fresh, Samples(), loss)),
        train(other, Samples(), settings, loss=loss),
        strict=True,
    ):
        assert fresh.training and a.loss == b.loss and same(weights(fresh), weights(other))


def test_the_clock_ends_a_run() -> None:
    (step,) = train(model(), Samples(), recipe(run={"steps": None, "minutes": 1e-9}), loss=loss)
    assert step.stop == "minutes"


def test_a_schedule_without_an_end_is_refused_before_the_run() -> None:
    with pytest.raises(ValueError, match=r"^schedule.kind: 'cosine' falls towards the last step"):
        train(model(), Samples(), recipe(run={"steps": None, "minutes": 1.0}, schedule={"kind": "cosine"}), loss=loss)


def test_epochs_are_steps() -> None:
    steps = list(train(model(), Samples(), recipe(run={"steps": None, "epochs": 1.5}), loss=loss))
    assert [step.index for step in steps] == list(range(1, 9))  # 7.5 of 5 an epoch
    assert [step.stop for step in steps] == [None] * 7 + ["steps"]


def test_a_run_is_not_begun_over_another(tmp_path: Path) -> None:
    list(train(model(), Samples(), recipe(run={"steps": 1}), loss=loss, out=tmp_path))
    with pytest.raises(TrainingError, match=r"states: a run was saved here; go on with it by resume"):
        train(model(), Samples(), recipe(), loss=loss, out=tmp_path)
