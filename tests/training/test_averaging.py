from __future__ import annotations

import pytest
import torch

from plait.training.averaging import Last, Moving, Without, average_of, averaged
from plait.training.settings import Run


def named(value: float, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {"w": torch.full((2,), value, dtype=dtype)}


def test_the_last_snapshots_and_no_others() -> None:
    average = Last(count=3, every=2)
    for step in range(1, 12):
        average.add(named(float(step**2)), step)
    assert average.mean()["w"].tolist() == pytest.approx([(36 + 64 + 100) / 3] * 2)
    to_the_end = Last(count=3, every=2, total=11)
    for step in range(1, 12):
        to_the_end.add(named(float(step**2)), step)
    assert to_the_end.mean()["w"].tolist() == pytest.approx([(49 + 81 + 121) / 3] * 2)
    early = Last(count=3, every=2)
    early.add(named(1.0), 1)
    assert early.mean() == {}


def test_a_moving_average_by_hand() -> None:
    average = Moving(0.5)
    for step, value in enumerate([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0], 1):
        average.add(named(value), step)
    mean = 1.0
    for step, value in enumerate([2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0], 2):
        keep = min(0.5, (1 + step) / (10 + step))
        mean = keep * mean + (1 - keep) * value
    assert average.mean()["w"].tolist() == pytest.approx([mean] * 2)


def test_averages_of_bfloat16_are_float32() -> None:
    """In bfloat16 steps of a thousandth would be lost beside 1."""
    average, value = Moving(0.999), 1.0
    for step in range(20_000, 20_400):
        average.add(named(value, torch.bfloat16), step)
        value = 1.0078125
    assert average.mean()["w"].dtype == torch.float32
    assert 1.0024 < float(average.mean()["w"][0]) < 1.0027
    assert Last(1, 1).mean() == {}


@pytest.mark.parametrize("make", [lambda: Moving(0.9), lambda: Last(2, 3)])
def test_an_average_goes_on_where_it_was_saved(make) -> None:
    whole, before, after = make(), make(), make()
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 20):
        weights = {"a": torch.randn(3, generator=generator), "b.c": torch.randn(2, generator=generator)}
        whole.add(weights, step)
        if step == 11:
            after.restore({name: value.clone() for name, value in before.state().items()})
        (before if step < 11 else after).add(weights, step)
    for name, value in whole.mean().items():
        assert torch.equal(value, after.mean()[name])


def test_the_weights_come_back_to_the_bit() -> None:
    weights = {"w": torch.tensor([1 / 3, 2 / 3], dtype=torch.bfloat16)}
    held, average = weights["w"].clone(), Moving(0.5)
    average.add(named(7.0), 1)
    with pytest.raises(RuntimeError, match="inside"), averaged(weights, average):
        assert weights["w"].tolist() == [7.0, 7.0]
        raise RuntimeError("inside")
    assert torch.equal(weights["w"], held)


def test_the_recipe_chooses() -> None:
    assert isinstance(average_of(Run()), Without)
    assert isinstance(average_of(Run(average="ema")), Moving)
    assert isinstance(average_of(Run(average="last")), Last)
