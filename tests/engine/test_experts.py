"""Experts on the engine: quantised ones stay packed, and only those that were picked are multiplied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from plait.architecture import Architecture, Experts, LayerType
from plait.checkpoint import Checkpoint, load, save
from plait.checkpoint.quantise import quantise
from plait.engine import kernels, optimize
from plait.engine.lower import lower
from plait.engine.weights import matrices
from plait.model import Transformer
from tests.models import far, random_model, random_tokens

ARCHITECTURE = Architecture(
    vocab_size=64,
    d_model=64,
    n_heads=4,
    d_ff=64,
    n_decoder_layers=2,
    norm="rmsnorm",
    position="rope",
    gated=True,
    activation="silu",
    layer_types=(LayerType(sparse=False), LayerType()),
    experts=Experts(n_experts=8, per_token=2, d_expert=32, router="sigmoid", renormalize=True, d_shared=32),
)


def checkpoint(dtype: torch.dtype = torch.float32) -> Checkpoint:
    model = random_model(ARCHITECTURE, dtype=dtype)
    return Checkpoint(architecture=ARCHITECTURE, model=model)


def logits(engine: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Of a prompt and of a step after it."""
    cache = engine.cache(len(tokens))
    read = engine.prefill(tokens[:, :-1], cache, last_only=False)
    return torch.cat([read, engine.step(tokens[:, -1], cache).view(len(tokens), 1, -1)], 1)


def test_every_expert_is_a_matrix_of_its_own() -> None:
    with torch.device("meta"):
        program = lower(Transformer(ARCHITECTURE))["decoder"]
    names = [name for (name, *_) in matrices([program]) if ".experts." in name]
    assert len(names) == 3 * 8 and names[0] == "decoder.layers.1.ffn.experts.gate.weight[0]"


@pytest.mark.skipif(not kernels.available(), reason=kernels.why_not())
@pytest.mark.parametrize("quantization", ["int8", "int4", "int4_min"])
def test_rounded_experts_are_packed_and_mean_what_quantise_says(quantization: str, tmp_path: Path) -> None:
    original, tokens = checkpoint(), random_tokens(2, 9)
    rounded, report = quantise(original, quantization)
    assert "decoder.layers.1.ffn.experts.up.weight" in {line.name for line in report}
    assert "decoder.layers.1.ffn.router.weight" not in {line.name for line in report}
    engine = optimize(original, quantization=quantization, threads=1)
    whole = sum(p.numel() for p in original.model.parameters())
    assert engine.weight_bytes < 4 * whole / 2.5
    expected = rounded.model(tokens)
    # activations are rounded too, to 16 bits or, for 4-bit weights, to 8
    assert far(logits(engine, tokens), expected) < (1e-3 if quantization == "int8" else 0.15)
    # saved, read back, and taken as the blocks that they are: the same numbers
    save(rounded, tmp_path / "model")
    again = load(tmp_path / "model", device="meta")
    kept = optimize(again, threads=1)
    assert torch.equal(logits(kept, tokens), logits(engine, tokens))
    assert kept.weight_bytes == engine.weight_bytes
    assert far(load(tmp_path / "model").model(tokens), expected) < 1e-6


@pytest.mark.skipif(not kernels.available(), reason=kernels.why_not())
def test_bfloat16_experts() -> None:
    original, tokens = checkpoint(torch.bfloat16), random_tokens(2, 9)
    engine = optimize(original, threads=1)
    wide = Transformer(ARCHITECTURE)
    wide.load_state_dict(original.model.state_dict())
    assert far(logits(engine, tokens), wide(tokens)) < 1e-4


@pytest.mark.filterwarnings("ignore:threads")  # more of them than this machine may have processors
@pytest.mark.skipif(not kernels.available(), reason=kernels.why_not())
@pytest.mark.parametrize("rows", [1, 2, 4, 5, 70])
def test_a_row_is_the_same_alone_and_among_others(rows: int) -> None:
    """Bit for bit, however many rows an expert has beside it, and however many threads there are."""
    tokens = random_tokens(rows, 3)
    for threads in (1, 3):
        engine = optimize(checkpoint(), threads=threads)
        whole = logits(engine, tokens)
        for i in (0, rows - 1):
            assert torch.equal(logits(engine, tokens[i : i + 1]), whole[i : i + 1])
