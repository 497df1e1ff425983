"""Reordered caches against no cache: what beam search will stand on."""

from __future__ import annotations

import pytest
import torch

from plait.generation import ModelRunner
from tests.generation.making import DECODERS, TRANSLATOR, random_model


def grow(name: str, seed: int, orders: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Three rows, reordered before every step, each time with new tokens: cached and uncached last logits."""
    architecture = TRANSLATOR if name == "translator" else DECODERS[name]
    model = random_model(architecture, seed)
    runner = ModelRunner(model)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(32, (3, 1 if name == "translator" else 5), generator=generator)
    source = torch.randint(32, (3, 4), generator=generator) if name == "translator" else None
    cache = runner.cache(3, capacity=16)
    cached = runner.prefill(rows, cache, source=source)[:, -1]
    for order in orders:
        kept = torch.tensor(order)
        new = torch.randint(32, (len(order),), generator=generator)
        rows, source = torch.cat((rows[kept], new[:, None]), dim=1), source[kept] if source is not None else None
        cache.reorder(kept)
        cached = runner.step(new, cache)
    return cached, model(rows, source=source)[:, -1]


@pytest.mark.parametrize("name", [*DECODERS, "translator"])
def test_kv9_a_swap_is_not_skipped_because_the_count_is_the_same(name: str) -> None:
    cached, uncached = grow(name, 0, [[1, 0, 2], [0, 2, 1]])
    assert (cached - uncached).abs().max() < 1e-9
    other, _ = grow(name, 0, [[0, 1, 2], [0, 2, 1]])
    assert (cached - other).abs().max() > 1e-3


@pytest.mark.parametrize("name", [*DECODERS, "translator"])
def test_kv6_everything_held_is_reordered(name: str) -> None:
    for seed in range(4):
        cached, uncached = grow(name, seed, [[2, 2, 0], [0, 0, 1], [1, 2], [1, 0, 0, 1]])
        assert (cached - uncached).abs().max() < 1e-9
