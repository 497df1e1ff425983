"""Layers computed twice, or compiled: the same gradients, fewer values kept."""

from __future__ import annotations

import copy

import pytest
import torch

from plait.data.batch import Batch
from plait.model import Transformer
from plait.model.dropout import set_dropout
from plait.model.sites import watching
from plait.training.blocks import compile_layers, recompute
from plait.training.loss import batch_loss
from tests.models import random_model
from tests.training.making import SHAPE

TOKENS = torch.randint(0, 11, (3, 9), generator=torch.Generator().manual_seed(0))


def made() -> Transformer:
    model = random_model(SHAPE, dtype=torch.float32)
    set_dropout(model, residual=0.3, attention=0.2, activation=0.1)
    return model.train()


def gradients(model: Transformer) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    model.zero_grad()
    batch_loss(model, Batch(tokens=TOKENS, targets=TOKENS))[0].backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def kept(model: Transformer) -> int:
    """Numbers that a forward pass keeps for the backward one."""
    held: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        held[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        batch_loss(model, Batch(tokens=TOKENS, targets=TOKENS))
    return sum(held.values())


def test_layers_computed_twice_give_the_same_gradients_to_the_bit_with_dropout():
    model = made()
    once = gradients(model)
    names = list(model.state_dict())
    recompute(model)
    twice = gradients(model)
    assert list(model.state_dict()) == names and once.keys() == twice.keys()
    assert all(torch.equal(once[name], twice[name]) for name in once)


def test_layers_computed_twice_keep_less():
    model = made()
    before = kept(model)
    recompute(model)
    assert kept(model) < before / 2


def test_layers_computed_twice_are_seen_and_evaluated_as_before():
    model = made().eval()
    with torch.no_grad():
        before = model(TOKENS)
        recompute(model)
        with watching(model, "decoder.layers.1.output") as seen:
            assert torch.equal(model(TOKENS), before)
    assert seen["decoder.layers.1.output"].shape == (3, 9, 12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's compiler has its own
def test_compiled_layers_give_the_same_gradients():
    model = made()
    set_dropout(model)
    compiled = copy.deepcopy(model)
    compile_layers(compiled)
    before, after = gradients(model), gradients(compiled)
    assert list(compiled.state_dict()) == list(model.state_dict())
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=1e-4, atol=1e-5)
