"""Ranking: the same as sorting all there is, ties included, for any number of searches at once."""

from __future__ import annotations

import math

import pytest
import torch

from plait.generation.ranking import likeliest


@pytest.mark.parametrize("vocab_size, n, values", [(5, 4, 9), (40, 3, 4), (3001, 3, 50), (6001, 10, 100_000)])
def test_the_first_of_all_there_is(vocab_size: int, n: int, values: int) -> None:
    """Few different values: many are equal, within a row, between rows, and at the last place."""
    generator = torch.Generator().manual_seed(vocab_size + values)
    for sizes in ([1], [3, 1, 2], [5] * 4):
        rows = sum(sizes)
        left = torch.randint(values, (rows, vocab_size), generator=generator).double()
        left[torch.rand(left.shape, generator=generator) < 0.3] = -math.inf
        left[-1] = -math.inf
        left[-1, ::2] = 0.0 if vocab_size > 5 else -math.inf
        own, totals = left + 100, torch.randint(3, (rows,), generator=generator).double()
        found = likeliest(own, left, totals, sizes, n)
        start = 0
        for size, candidates in zip(sizes, found, strict=True):
            sums = left[start : start + size] + totals[start : start + size, None]
            places = [(-float(sums[r, t]), r, t) for r in range(size) for t in range(vocab_size)]
            expected = [place for place in sorted(places) if place[0] < math.inf][:n]
            assert [(-c.total, c.parent, c.token) for c in candidates] == expected
            assert all(c.own == float(own[start + c.parent, c.token]) for c in candidates)
            start += size
