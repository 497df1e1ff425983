"""Precision: what is computed in half the bits, and what must not be."""

from __future__ import annotations

import pytest
import torch

from plait.data.batch import Batch
from plait.model import Transformer
from plait.training.loss import batch_loss
from plait.training.precision import Masters, Precision, Scaled, precision_of
from tests.models import far, random_model
from tests.training.test_loss import DECODER, a_batch


def step(model: Transformer, precision: Precision, batches: list[Batch]) -> dict[str, torch.Tensor]:
    """The masters' gradients after one step's micro-batches."""
    for batch in batches:
        with precision.computing():
            loss, count = batch_loss(model, batch)
        (loss / count * precision.scale).backward()
    precision.collect()
    return {name: master.grad for name, master in precision.masters().items() if master.grad is not None}


def a_model() -> Transformer:
    return random_model(DECODER, dtype=torch.float32).train()


@pytest.mark.parametrize("kind", ["bfloat16", "pure_bfloat16"])
def test_half_precision_is_near_and_what_the_optimizer_moves_is_float32(kind: str) -> None:
    exact = step(a_model(), precision_of("float32", model := a_model()), [])
    assert exact == {} and model is not None
    model = a_model()
    exact = step(model, precision_of("float32", model), [a_batch()])
    model = a_model()
    precision = precision_of(kind, model)
    found = step(model, precision, [a_batch()])
    assert found.keys() == exact.keys() == precision.masters().keys()
    for name, gradient in found.items():
        assert gradient.dtype == precision.masters()[name].dtype == torch.float32
        assert 0 < float((gradient - exact[name]).norm() / exact[name].norm()) < 0.1, name


def test_the_output_layer_multiplies_in_autocasts_type_and_sums_in_float32() -> None:
    model, batch = a_model(), a_batch()
    with torch.autocast("cpu", torch.bfloat16):
        states = model.states(batch.tokens, **batch.inputs)[batch.real]
        loss, _ = batch_loss(model, batch)
    weight = model.get_parameter("head.output.weight")
    rounded = (states.bfloat16() @ weight.bfloat16().T).float()
    expected = torch.nn.functional.cross_entropy(rounded, batch.targets[batch.real], reduction="sum")
    assert loss.dtype == torch.float32 and far(loss, expected) < 1e-6


def test_nu4_masters_take_updates_that_bfloat16_would_lose() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    lost = torch.ones(1, dtype=torch.bfloat16)
    precision = Masters(model)
    masters = precision.masters()
    for _ in range(1000):
        lost -= 1e-3
        masters["weight"].data -= 1e-3
        precision.spread()
    assert float(lost) == 1.0 and model.weight.dtype == torch.bfloat16
    assert torch.equal(model.weight, masters["weight"].bfloat16()) and abs(model.weight.item()) < 1e-4
    assert precision.masters()["weight"] is masters["weight"], "the same at every call"


def test_pure_bfloat16_adds_micro_batches_in_float32() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    precision = Masters(model)
    for size in (256.0, 1.0, 1.0):
        model(torch.full((1, 1), size, dtype=torch.bfloat16)).sum().backward()
    precision.collect()
    gradient = precision.masters()["weight"].grad
    assert gradient is not None and float(gradient) == 258.0, "bfloat16 would have 256"
    assert model.weight.grad is None


def test_what_is_frozen_has_no_master() -> None:
    model = a_model()
    model.embedding.requires_grad_(False)
    precision = Masters(model)
    assert not any("embedding" in name for name in precision.masters()) and len(precision.masters()) > 10
    assert model.get_parameter("embedding.tokens.weight").dtype == torch.bfloat16


def test_a_scale_falls_on_overflow_rises_when_calm_and_is_restored() -> None:
    precision = Scaled(torch.nn.Linear(1, 1), "cuda", patience=3)
    scale = precision.scale
    assert precision.adapt(False) and precision.scale == scale / 2
    assert [precision.adapt(True) for _ in range(3)] == [False] * 3 and precision.scale == scale
    precision.adapt(False)
    precision.adapt(True)
    other = Scaled(torch.nn.Linear(1, 1), "cuda", patience=3)
    other.restore(precision.state())
    for one in (precision, other):
        one.adapt(True)
        assert one.scale == scale / 2
        one.adapt(True)
        assert one.scale == scale
    precision.scale = 1.0
    assert not precision.adapt(False), "no scale is to blame"


def test_a_scaled_loss_keeps_gradients_that_half_precision_would_lose() -> None:
    """float16's smallest number is 6e-8; the same pass with and without a scale."""
    lost: list[bool] = []
    for scale in (1.0, 2.0**16):
        model = torch.nn.Linear(4, 4, bias=False)
        precision = Scaled(model, "cpu")
        precision.scale = scale
        with precision.computing():
            loss = (model(torch.full((1, 4), 1e-3)) * 1e-6).sum()
        (loss * precision.scale).backward()
        assert model.weight.grad is not None
        lost.append(not model.weight.grad.any())
    assert lost == [True, False]


@pytest.mark.parametrize("kind, words", [("float16", "slower than float32 on a CPU"), ("int8", "none of float32")])
def test_what_makes_no_sense_is_refused(kind: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        precision_of(kind, torch.nn.Linear(1, 1))
