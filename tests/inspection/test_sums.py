"""What inspection takes apart adds up again: the residual stream, attributions, memories, the lens's last row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from plait.architecture import Architecture, Classification
from plait.inspection import attribute, lens, memories, stream
from plait.inspection.attribution import By
from plait.inspection.lens import stack_of
from tests.inspection.making import traced
from tests.models import far
from tests.strategies import architectures, over_grid

BYS: tuple[By, ...] = ("branches", "heads", "neurons")


def check_sums(architecture: Architecture) -> None:
    seen = traced(architecture)
    for by in BYS:
        found = attribute(seen, seen.output.shape[-1] - 1, position=4, by=by)
        assert found.total == pytest.approx(found.output, abs=1e-9)
        assert len(set(found.names)) == len(found.names) == len(found.values)
    against = attribute(seen, 0, against=seen.output.shape[-1] - 1, by="heads")
    assert against.total == pytest.approx(against.output, abs=1e-9)
    *_, (name, last) = lens(seen)
    assert far(last, seen.output) < 1e-12 and name.endswith("output")


@over_grid
def test_in1_in2_the_sums_hold(architecture: Architecture) -> None:
    check_sums(architecture)


@given(architecture=architectures())
def test_the_sums_hold_anywhere(architecture: Architecture) -> None:
    check_sums(architecture)


@over_grid
def test_memories_add_up_to_what_the_network_gives(architecture: Architecture) -> None:
    seen = traced(architecture)
    for turn, block in enumerate(stack_of(seen.model).blocks):
        layer = f"{seen.tower}.layers.{turn}"
        made = torch.stack([network.output() for network in memories(block.ffn, seen, f"{layer}.ffn")]).sum(0)
        assert far(block.ffn_norms.branch(made), seen[f"{layer}.ffn_branch"]) < 1e-10


@pytest.mark.parametrize("pooling", ["cls", "mean", "last", None])
def test_pooled_heads_are_attributed_too(pooling: str | None) -> None:
    kind = {"n_decoder_layers": 2} if pooling == "last" else {"n_encoder_layers": 2}
    architecture = Architecture(
        vocab_size=32,
        d_model=16,
        n_heads=4,
        d_ff=20,
        head=Classification(labels=5, pooling=pooling),  # pyright: ignore[reportArgumentType]
        **kind,
    )
    seen = traced(architecture)
    for by in BYS:
        found = attribute(seen, 3, against=1, by=by)
        assert found.total == pytest.approx(found.output, abs=1e-9)


def test_each_row_of_the_lens_has_its_own_statistics() -> None:
    seen = traced(Architecture(vocab_size=32, d_model=16, n_heads=4, d_ff=20, n_decoder_layers=2))
    norm, head = stack_of(seen.model).norm, seen.model.head
    assert norm is not None and head is not None and head.output.weight is not None
    for (name, logits), (_, states) in zip(lens(seen, between=True), stream(seen, between=True), strict=True):
        by_hand = (states - states.mean(-1, keepdim=True)) / (
            states.var(-1, unbiased=False, keepdim=True) + 1e-5
        ).sqrt()
        by_hand = by_hand * norm.weight + norm.bias
        assert far(by_hand @ head.output.weight.t(), logits) < 1e-12, name
