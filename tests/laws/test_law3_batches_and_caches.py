"""Law 3: batched = single for any padding and length; chunked = one pass; cached = uncached; any cache = any other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from plait.architecture import Architecture
from plait.model import Cache, Transformer
from tests.models import far, random_model, random_source, random_tokens
from tests.strategies import NAMED_GRID, architectures, over_grid

NEAR = 1e-9
LENGTHS = (9, 4, 1)
DECODERS = {name: a for name, a in NAMED_GRID.items() if a.n_decoder_layers}
over_decoders = pytest.mark.parametrize("architecture", DECODERS.values(), ids=list(DECODERS))


def padded(rows: list[Tensor], shifts: list[int], width: int) -> tuple[Tensor, Tensor]:
    """Rows side by side, each ``shift`` places from the left; the filler is a token that would show."""
    tokens, mask = torch.full((len(rows), width), 7), torch.zeros(len(rows), width, dtype=torch.bool)
    for i, (row, shift) in enumerate(zip(rows, shifts, strict=True)):
        tokens[i, shift : shift + len(row)] = row
        mask[i, shift : shift + len(row)] = True
    return tokens, mask


def one_by_one(model: Transformer, rows: list[Tensor], source: dict[str, Any]) -> list[Tensor]:
    return [
        model(row.unsqueeze(0), **{name: value[i : i + 1] for name, value in source.items()})[0]
        for i, row in enumerate(rows)
    ]


def check_padding(architecture: Architecture, shifts: list[int]) -> None:
    model = random_model(architecture)
    rows = [random_tokens(n, seed=n) for n in LENGTHS]
    source = random_source(architecture, len(rows))
    tokens, mask = padded(rows, shifts, max(n + s for n, s in zip(LENGTHS, shifts, strict=True)))
    batched, singles = model(tokens, mask=mask, **source), one_by_one(model, rows, source)
    for i, single in enumerate(singles):
        mine = batched[i][mask[i]] if single.ndim == 2 else batched[i]
        assert far(mine, single) < NEAR


@over_grid
@pytest.mark.parametrize("shifts", [[0, 5, 8], [0, 0, 0], [2, 3, 4]], ids=["left", "right", "both"])
def test_law3_batched_is_single(architecture: Architecture, shifts: list[int]) -> None:
    check_padding(architecture, shifts)


@given(architecture=architectures(), shifts=st.lists(st.integers(0, 6), min_size=3, max_size=3))
def test_law3_batched_is_single_anywhere(architecture: Architecture, shifts: list[int]) -> None:
    check_padding(architecture, shifts)


def check_caches(architecture: Architecture, chunks: list[int], pad: int) -> None:
    """Read the same rows at once and in chunks, through every kind of cache, the second row padded."""
    model, length = random_model(architecture), sum(chunks)
    tokens, source = random_tokens(2, length), random_source(architecture, 2)
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[1, :pad] = False
    whole = model(tokens, mask=mask, **source)
    if whole.ndim == 2:
        return  # a class is named once, from the whole row
    totals = mask.sum(1)
    for options in ({}, {"capacity": length}, {"sliding": True}):
        cache = Cache(architecture, 2, dtype=torch.float64, total_lengths=totals, **options)
        parts, at = [], 0
        for i, n in enumerate(chunks):
            given_mask = None if pad == 0 else mask[:, at : at + n]
            parts.append(model(tokens[:, at : at + n], mask=given_mask, cache=cache, **(source if i == 0 else {})))
            at += n
        assert far(torch.cat(parts, 1)[mask], whole[mask]) < NEAR, options
        assert cache.lengths.tolist() == totals.tolist()


CHUNKS = {"steps": [1] * 11, "halves": [6, 5], "mixed": [3, 1, 1, 4, 2]}
READ = [  # every architecture in one of these ways, in turn; in the others where there is time
    pytest.param(a, chunks, id=f"{how}-{name}", marks=[] if (i + j) % len(CHUNKS) == 0 else [pytest.mark.slow])
    for i, (name, a) in enumerate(DECODERS.items())
    for j, (how, chunks) in enumerate(CHUNKS.items())
]


@pytest.mark.parametrize(("architecture", "chunks"), READ)
def test_law3_cached_is_uncached(architecture: Architecture, chunks: list[int]) -> None:
    check_caches(architecture, chunks, pad=0)
    check_caches(architecture, chunks, pad=2)


@given(
    architecture=architectures(kinds=("decoder", "encoder-decoder")),
    chunks=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    pad=st.integers(0, 3),
)
def test_law3_cached_is_uncached_anywhere(architecture: Architecture, chunks: list[int], pad: int) -> None:
    check_caches(architecture, chunks, min(pad, sum(chunks) - 1))


@over_decoders
def test_law3_rows_reordered_forked_and_cut_back_go_on_as_if_read_so(architecture: Architecture) -> None:
    model = random_model(architecture)
    tokens, source = random_tokens(2, 7), random_source(architecture, 2)
    if model(tokens, **source).ndim == 2:
        return
    totals = torch.tensor([9, 9])
    cache = Cache(architecture, 2, dtype=torch.float64, total_lengths=totals)
    model(tokens, cache=cache, **source)
    more = random_tokens(2, 2, seed=5)
    swapped = cache.fork(1)
    swapped.reorder(torch.tensor([1, 0]))
    assert far(model(more.flip(0), cache=swapped).flip(0), model(more, cache=cache.fork(1))) < NEAR
    twins = cache.fork(2)
    assert far(model(more.repeat_interleave(2, 0), cache=twins)[::2], model(more, cache=cache.fork(1))) < NEAR
    for lengths in (4, torch.tensor([3, 6])):
        cut, fresh = cache.fork(1), Cache(architecture, 2, dtype=torch.float64, total_lengths=totals)
        cut.truncate(lengths)
        keep = torch.arange(7) < torch.as_tensor(lengths).expand(2).unsqueeze(1)
        model(tokens, mask=keep, cache=fresh, **source)
        assert cut.lengths.tolist() == fresh.lengths.tolist()
        assert far(model(more, cache=cut), model(more, cache=fresh)) < NEAR
