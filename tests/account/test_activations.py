"""What a pass keeps, on paper, is what torch's autograd saves, counted once for each storage and without parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from plait.account.activations import kept, largest_layer
from plait.account.layers import SHORT
from plait.account.output import CHUNK, LEAST
from plait.account.passes import POOL, Pass
from plait.architecture import Architecture, Experts
from plait.data.batch import Batch
from plait.model import Transformer, attention, dropout
from plait.presets import preset
from plait.training import lora, output_loss
from plait.training.blocks import recompute
from plait.training.loss import batch_loss
from plait.training.precision import precision_of

SIZE: dict[str, Any] = dict(d_model=64, n_heads=4, d_head=16, d_ff=160, vocab_size=200, max_length=64)
TWO = dict(n_encoder_layers=2, n_decoder_layers=2)
EXPERTS = Experts(n_experts=4, per_token=2, d_expert=48, d_shared=32)
SHAPES = {
    "gpt2": preset("gpt2").replace(**SIZE, n_decoder_layers=2),
    "llama": preset("llama-3-8b").replace(**SIZE, n_decoder_layers=2, n_kv_heads=2),
    "gemma-2": preset("gemma-2-2b").replace(**SIZE, n_decoder_layers=2, n_kv_heads=2, layer_types=()),
    "experts": preset("llama-3-8b").replace(**SIZE, n_decoder_layers=2, n_kv_heads=2, experts=EXPERTS),
    "bert": preset("bert-base").replace(**SIZE, n_encoder_layers=2),
    "vaswani": preset("vaswani-base").replace(**SIZE, **TWO),
    "t5": preset("t5-small").replace(**SIZE, **TWO),
}
DROPPED = 0.25
PASSES = [dict(rows=3, length=20, source_length=14), dict(rows=2, length=48, source_length=56)]


def saved(model: Transformer, p: Pass) -> int:
    """Bytes that a pass and its loss leave saved."""
    a = model.architecture
    tokens, targets = (torch.randint(0, a.vocab_size, (p.rows, p.length)) for _ in range(2))
    batch: dict[str, Any] = {}
    if a.kind == "encoder-decoder":
        batch["source"] = torch.randint(0, a.source_vocab_size, (p.rows, p.source_length or 0))
    if p.masked:
        batch["mask"] = torch.ones(p.rows, p.length, dtype=torch.bool)
        if "source" in batch:
            batch["source_mask"] = torch.ones_like(batch["source"], dtype=torch.bool)
    precision = precision_of(p.precision, model)
    there = [*model.parameters(), dropout.mask_pool(DROPPED, torch.float32)]
    own = {tensor.untyped_storage().data_ptr() for tensor in there}
    seen: dict[int, tuple[int, torch.Tensor]] = {}  # the tensors stay alive, so that no place is used twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), precision.computing():
        batch_loss(model, Batch(tokens=tokens, targets=targets, **batch))
    return sum(size for size, _ in seen.values())


def passed(a: Architecture, said: dict[str, int], **more: Any) -> Pass:
    source = {} if a.kind == "encoder-decoder" else {"source_length": None}
    return Pass(**{**said, **source, "device": "cpu", **more})


def assert_near(paper: int, real: int) -> None:
    """At most 15 % too much, and 10 % too little."""
    assert 0.9 * real <= paper <= 1.15 * real, f"{paper:,} on paper, {real:,} saved: {paper / real - 1:+.1%}"


@pytest.mark.parametrize("said", [PASSES[0], pytest.param(PASSES[1], marks=pytest.mark.slow)], ids=["short", "long"])
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("name", SHAPES)
def test_what_is_kept_is_what_autograd_saves(name: str, twice: bool, said: dict[str, int]) -> None:
    a = SHAPES[name]
    model, p = Transformer(a).train(), passed(a, said)
    if twice:
        recompute(model)
    assert_near(sum(kept(a, p, twice=twice).values()), saved(model, p))


@pytest.mark.parametrize("masked", [False, True], ids=["square", "masked"])
@pytest.mark.parametrize("precision", ["bfloat16", "pure_bfloat16"])
@pytest.mark.parametrize("name", SHAPES)
def test_in_half_precision_and_with_padding(name: str, precision: Any, masked: bool) -> None:
    a = SHAPES[name]
    p = passed(a, PASSES[0], precision=precision, masked=masked)
    assert_near(sum(kept(a, p).values()), saved(Transformer(a).train(), p))


def test_a_mask_costs_every_layer_a_copy() -> None:
    a, said = SHAPES["gpt2"], PASSES[1]
    p, masked = passed(a, said), passed(a, said, masked=True)
    more = saved(Transformer(a).train(), masked) - saved(Transformer(a).train(), p)
    assert more >= 2 * 2 * 48 * 48 * 4
    assert_near(sum(kept(a, masked).values()) - sum(kept(a, p).values()), more)


def test_frozen_matrices_keep_less() -> None:
    a, said = SHAPES["llama"], PASSES[1]
    model = Transformer(a).train()
    names = {f"{name}.weight" for name in lora.attach(model, rank=2, targets=("attention.query",)).names} | {
        name for name in dict(model.named_parameters()) if name.endswith("attention.query.weight")
    }
    p = passed(a, said, norms=False, learns=lambda name: name in names)
    assert_near(sum(kept(a, p).values()), saved(model, p))
    assert sum(kept(a, p).values()) < 0.9 * sum(kept(a, passed(a, said)).values())


@pytest.mark.parametrize("where", ["residual", "attention", "activation"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "vaswani"])
def test_what_is_dropped(name: str, where: str) -> None:
    a = SHAPES[name]
    model = Transformer(a).train()
    dropout.set_dropout(model, **{where: DROPPED})
    p = passed(a, PASSES[1], **{where: True})
    assert_near(sum(kept(a, p).values()), saved(model, p))


def test_one_layer_is_the_difference_that_a_layer_makes() -> None:
    a = SHAPES["llama"]
    p = passed(a, PASSES[0])
    one, two = (sum(kept(a.replace(n_decoder_layers=n), p).values()) for n in (1, 2))
    assert largest_layer(a, p) == two - one


def test_the_numbers_of_the_code_that_computes() -> None:
    assert SHORT == attention.SHORT and POOL == dropout.POOL
    assert (CHUNK, LEAST) == (output_loss.CHUNK, output_loss.LEAST)
