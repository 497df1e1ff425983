"""Law 9: fast = plain. The engine against the plain model, on its torch path in float64 and on its kernels in float32.

The float32 side is held against the float64 model with the same weights: what is left is rounding.
"""

import pytest
import torch
from hypothesis import assume, given

from plait.architecture import Architecture
from plait.checkpoint import Checkpoint
from plait.engine import EngineRunner, optimize
from plait.generation import ModelRunner
from plait.model import Transformer
from tests.models import far, random_model, random_source, random_tokens
from tests.strategies import architectures, over_grid

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
in_both = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["torch", "kernels"])


def engines(architecture: Architecture, dtype: torch.dtype) -> tuple[Transformer, EngineRunner]:
    """A float64 model, and the engine over the same weights."""
    model = random_model(architecture).float().double()  # numbers that float32 holds too
    return model, optimize(Checkpoint(architecture=architecture, model=model), dtype=dtype)


def no_ties(architecture: Architecture, dtype: torch.dtype) -> bool:
    """In float32 a token may go to another expert than in float64 where two are nearly as good; not so in the grid."""
    return dtype == torch.float64 or architecture.experts is None


def check_encoder(architecture: Architecture, dtype: torch.dtype) -> None:
    """Rows of three lengths, encoded and classified."""
    model, engine = engines(architecture, dtype)
    tokens = random_tokens(3, 9)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[1, 6:] = False
    mask[2, :3] = False
    rows = [tokens[i][mask[i]].tolist() for i in range(3)]
    with torch.inference_mode():
        states = model.encode(tokens, mask)
        for i, state in enumerate(engine.states(rows)):
            assert far(state.double(), states[i][mask[i]]) < TOLERANCE[dtype]
        if architecture.kind == "encoder" and model.head is not None:
            wanted = model(tokens, mask=mask)
            for i, logits in enumerate(engine.classify(rows)):
                expected = wanted[i][mask[i]] if model.head.pooling is None else wanted[i : i + 1]
                assert far(logits.double(), expected) < TOLERANCE[dtype]


def check_decoder(architecture: Architecture, dtype: torch.dtype) -> None:
    """Rows of three lengths in chunks, then token by token, the cache's rows put into another order on the way."""
    model, engine = engines(architecture, dtype)
    plain = ModelRunner(model)
    tokens = random_tokens(3, 9)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[1, :3] = False
    mask[2, :5] = False
    totals = [int(n) + 3 for n in mask.sum(1)]
    caches = plain.cache(3, total_lengths=totals), engine.cache(3, total_lengths=totals)
    pooled = model.head is not None and model.head.pooling is not None
    for part in (slice(0, 6), slice(6, 9)):
        sources = random_source(architecture, 3) if part.start == 0 else {}
        expected, found = (
            runner.prefill(tokens[:, part], cache, mask=mask[:, part], last_only=False, **sources)
            for runner, cache in zip((plain, engine), caches, strict=True)
        )
        real = slice(None) if pooled else mask[:, part]
        assert far(found[real].double(), expected[real]) < TOLERANCE[dtype]
    for k in range(0 if pooled else 3):
        chosen = random_tokens(3, seed=5 + k)
        expected, found = (r.step(chosen, cache) for r, cache in zip((plain, engine), caches, strict=True))
        assert far(found.double(), expected) < TOLERANCE[dtype]
        if k == 1:
            for cache in caches:
                cache.reorder(torch.tensor([2, 0, 0]))


@over_grid
@in_both
def test_an_encoder_reads_ragged_rows(architecture: Architecture, dtype: torch.dtype) -> None:
    if architecture.kind == "decoder":
        pytest.skip("a decoder alone")
    check_encoder(architecture, dtype)


@in_both
@given(architecture=architectures(kinds=("encoder", "encoder-decoder")))
def test_any_encoder_reads_ragged_rows(dtype: torch.dtype, architecture: Architecture) -> None:
    assume(no_ties(architecture, dtype))
    check_encoder(architecture, dtype)


@over_grid
@in_both
def test_a_decoder_reads_chunks_then_tokens_in_any_order(architecture: Architecture, dtype: torch.dtype) -> None:
    if architecture.kind == "encoder":
        pytest.skip("an encoder alone")
    check_decoder(architecture, dtype)


@in_both
@given(architecture=architectures(kinds=("decoder", "encoder-decoder")))
def test_any_decoder_reads_chunks_then_tokens_in_any_order(dtype: torch.dtype, architecture: Architecture) -> None:
    assume(no_ties(architecture, dtype))
    check_decoder(architecture, dtype)
