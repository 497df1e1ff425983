"""Norms, activations and half precision: worked numbers N1 to N4, NU rows, and D3's identity."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from plait.architecture import Architecture
from plait.model import Transformer, initialize, watching
from plait.model.feedforward import ACTIVATIONS
from plait.model.norm import Norm, Slots
from tests.models import far, random_model, random_tokens

SIZE = dict(vocab_size=32, d_model=4, n_heads=2, d_ff=8, n_decoder_layers=1, norm_eps=0.0)


def layer_norm(values: list[float]) -> list[float]:
    norm = Norm(Architecture(**{**SIZE, "d_model": len(values), "n_heads": 1}), len(values))
    nn.init.ones_(norm.weight)
    nn.init.zeros_(norm.bias)
    return norm(torch.tensor(values, dtype=torch.float32)).tolist()


def test_n1_layer_norm_of_three() -> None:
    assert layer_norm([2, 4, 6]) == pytest.approx([-1.2247, 0, 1.2247], abs=5e-5)


def test_n2_layer_norm_of_four() -> None:
    assert layer_norm([2, 6, 4, 8]) == pytest.approx([-1.3416, 0.4472, -0.4472, 1.3416], abs=5e-5)


def test_n3_residual_then_layer_norm() -> None:
    slots = Slots(Architecture(**SIZE, norm_placement="post"), ("merge",))
    nn.init.ones_(slots.merge.weight)
    nn.init.zeros_(slots.merge.bias)
    x, branch = torch.tensor([1.0, 0.5, 0.2, 0.8]), torch.tensor([0.3, 0.1, 0.2, 0.4])
    bare = Slots(Architecture(**SIZE), ())
    assert bare.leave(x, branch).tolist() == pytest.approx([1.3, 0.6, 0.4, 1.2])
    assert slots.leave(x, branch).tolist() == pytest.approx([1.1090, -0.7176, -1.2394, 0.8480], abs=5e-5)


def test_n4_a_residual_is_a_sum() -> None:
    slots = Slots(Architecture(**SIZE), ())
    assert slots.leave(torch.tensor([1.0, 2.0]), torch.tensor([0.1, -0.3])).tolist() == pytest.approx([1.1, 1.7])


def test_d3_a_pre_norm_block_with_zero_outputs_is_the_identity_and_a_post_norm_one_is_not() -> None:
    for placement, same in (("pre", True), ("post", False)):
        model = Transformer(Architecture(**{**SIZE, "norm_eps": 1e-5}, norm_placement=placement))  # type: ignore[arg-type]
        initialize(model, zero_residual=True)
        with watching(model, "embedding.output", "decoder.layers.0.output") as seen:
            model(random_tokens(1, 5))
        assert torch.equal(seen["embedding.output"], seen["decoder.layers.0.output"]) is same


@pytest.mark.parametrize("gated", [False, True])
def test_nu1_a_feed_forward_past_the_range_of_float16_stays_finite(gated: bool) -> None:
    architecture = Architecture(**{**SIZE, "norm_eps": 1e-6}, norm="rmsnorm", gated=gated, ffn_bias=False)
    model = random_model(architecture, dtype=torch.float32)
    with torch.no_grad():
        model.decoder.layers[0].ffn.down.weight.fill_(66246.0)
    tokens = random_tokens(1, 5)
    with watching(model, "decoder.layers.0.ffn_branch") as seen:
        model(tokens)
        assert seen["decoder.layers.0.ffn_branch"].abs().max() > 65504, "or this tests nothing"
    with torch.no_grad():
        model.decoder.layers[0].ffn.down.weight.fill_(60000.0)
    half = model.to(torch.float16)
    logits = half(tokens)
    loss = nn.functional.cross_entropy(logits[0].float(), tokens[0])
    assert logits.isfinite().all() and loss.isfinite()


EXACT = {
    "relu": lambda x: max(x, 0.0),
    "relu2": lambda x: max(x, 0.0) ** 2,
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nu2_every_activation_is_exact(name: str) -> None:
    for x in (-2.699, -0.5, 0.0, 0.3, 3.1):
        value = float(ACTIVATIONS[name](torch.tensor(x, dtype=torch.float64)))
        assert value == pytest.approx(EXACT[name](x), abs=1e-12)
    assert abs(EXACT["gelu"](-2.699) - EXACT["gelu_tanh"](-2.699)) > 4e-4, "the two must not pass for each other"


def test_offset_weights_are_added_in_float32() -> None:
    norm = Norm(Architecture(**{**SIZE, "norm_eps": 1e-5}, norm="rmsnorm", norm_weight="offset"), 4)
    nn.init.constant_(norm.weight, 0.001)
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        exact = norm(x.bfloat16().float())
        half = norm.to(torch.bfloat16)(x.bfloat16())
    assert half.dtype == torch.bfloat16 and far(half.float(), exact.bfloat16().float()) < 0.01
    assert torch.equal(
        half, (nn.functional.rms_norm(x.bfloat16().float(), (4,), eps=1e-5) * (1 + norm.weight.float())).bfloat16()
    )
