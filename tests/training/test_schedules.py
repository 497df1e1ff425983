from __future__ import annotations

import math

import pytest

from plait.training.schedules import SHAPES, share, steps_of
from plait.training.settings import Schedule
from tests.training.making import recipe


def shares(steps: int | None, upto: int, **said) -> list[float]:
    return [share(Schedule(**said), step, steps) for step in range(upto)]


def test_tr14_the_first_update_is_at_zero() -> None:
    assert shares(None, 6, kind="constant", warmup=4) == [0, 0.25, 0.5, 0.75, 1, 1]


def test_the_shapes_by_hand() -> None:
    assert shares(10, 12, kind="linear", warmup=2, final=0.2) == pytest.approx(
        [0, 0.5, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.2]
    )
    assert shares(4, 6, kind="cosine", warmup=0) == pytest.approx(
        [1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2, 0, 0]
    )
    assert shares(None, 17, kind="inverse_sqrt", warmup=4)[4::4] == pytest.approx([1, 0.5**0.5, 3**-0.5, 0.5])
    assert shares(10, 11, kind="wsd", warmup=2, decay=4) == pytest.approx([0, 0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0])
    assert shares(10, 11, kind="wsd", warmup=0) == pytest.approx([1] * 9 + [0.5, 0])  # a fifth


def test_inverse_sqrt_is_noams() -> None:
    """Vaswani et al. 2017, eq. 3, whose step counts from 1: its value over its peak."""

    def noam(step: int, warmup: int) -> float:
        return min(step**-0.5, step * warmup**-1.5)

    for step in range(1, 50):
        ours = share(Schedule(kind="inverse_sqrt", warmup=7), step, None)
        assert ours == pytest.approx(noam(step, 7) / noam(7, 7))


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(("warmup", "steps"), [(0, 1), (0, 7), (3, 3), (5, 3), (1, 2)])
def test_every_schedule_holds_at_its_edges(kind: str, warmup: int, steps: int) -> None:
    values = shares(steps, steps + 3, kind=kind, warmup=warmup, final=0.1)
    assert all(0 <= value <= 1 and math.isfinite(value) for value in values)
    assert values[warmup:] == sorted(values[warmup:], reverse=True)


@pytest.mark.parametrize("kind", ["linear", "cosine", "wsd"])
def test_what_falls_must_know_the_end(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"^schedule.kind: '{kind}' falls towards the last step"):
        share(Schedule(kind=kind, warmup=0), 3, None)


def test_steps_are_given_or_counted_in_epochs() -> None:
    assert steps_of(recipe(run={"steps": 7}), 5) == 7
    assert steps_of(recipe(run={"steps": None, "epochs": 2.0}), 5) == 10
    assert steps_of(recipe(run={"steps": None, "epochs": 0.01}), 5) == 1
    assert steps_of(recipe(run={"steps": None, "minutes": 1.0}), 5) is None
