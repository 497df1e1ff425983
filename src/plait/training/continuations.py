"""Continuations: how likely a runner finds tokens behind others, for many rows together."""

# b rows, n tokens

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from plait.generation import Runner
from plait.generation.padding import padded
from plait.generation.row import at_least_float32

Row = tuple[list[int], list[int]]  # what stands before, and what is scored
CHUNK = 256  # tokens of each row whose logits are held at once


def likelihoods(
    runner: Runner, rows: Sequence[Row], start: Sequence[int], longest: int, batch_tokens: int
) -> list[tuple[float, bool]]:
    """For each row the log-probability of its second part, and whether each token of it is the likeliest there.

    Rows of like lengths are computed together, up to ``batch_tokens``, padding counted. Those longer than ``longest``
    lose their beginning. With ``start``, what an encoder-decoder writes first, the first part is a source.
    """
    found: dict[int, tuple[float, bool]] = {}
    order = sorted(range(len(rows)), key=lambda i: -sum(map(len, rows[i])))
    at = 0
    while at < len(order):
        width = max(1, min(sum(map(len, rows[order[at]])), longest))
        places = order[at : at + max(1, batch_tokens // width)]
        scores = _scored(runner, [rows[i] for i in places], start, longest)
        found.update(zip(places, scores, strict=True))
        at += len(places)
    return [found[i] for i in range(len(rows))]


@torch.inference_mode()
def _scored(runner: Runner, rows: Sequence[Row], start: Sequence[int], longest: int) -> list[tuple[float, bool]]:
    """``likelihoods`` of one batch."""
    whole = [[*start, *after] if start else [*before, *after][-(longest + 1) :] for before, after in rows]
    tokens, mask = padded([row[:-1] for row in whole], runner.device, side="left")  # b n
    sources: dict[str, Any] = {}
    if start:
        sources["source"], sources["source_mask"] = padded(
            [before[-longest:] for before, _ in rows], runner.device, side="left"
        )
    cache = runner.cache(len(rows), total_lengths=[len(row) - 1 for row in whole])
    scored = max(len(after) for _, after in rows)
    sums, likeliest = [0.0] * len(rows), [True] * len(rows)
    for part, wanted in _parts(tokens.shape[1], scored):
        logits = runner.prefill(
            tokens[:, part], cache, mask=None if mask is None else mask[:, part], last_only=not wanted, **sources
        )
        sources = {}
        if not wanted:
            continue
        logits = at_least_float32(logits)
        best, norms = logits.argmax(-1), logits.logsumexp(-1)  # b n
        for i, (row, (_, after)) in enumerate(zip(whole, rows, strict=True)):
            ahead = tokens.shape[1] - (len(row) - 1)  # padding
            first = max(part.start, tokens.shape[1] - len(after))
            places = range(first - part.start, part.stop - part.start)
            said = torch.tensor([row[part.start + place + 1 - ahead] for place in places], dtype=torch.long)
            if len(said):
                own = logits[i, places.start :].gather(1, said.to(logits.device)[:, None])[:, 0]
                sums[i] += float((own - norms[i, places.start :]).double().sum())
                likeliest[i] = likeliest[i] and bool((best[i, places.start :].cpu() == said).all())
    return list(zip(sums, likeliest, strict=True))


def _parts(n: int, scored: int) -> Iterator[tuple[slice, bool]]:
    """Pieces of ``n`` columns, and whether logits are wanted: of the last ``scored``."""
    ahead = max(n - scored, 0)
    if ahead:
        yield slice(0, ahead), False
    for at in range(ahead, n, CHUNK):
        yield slice(at, min(at + CHUNK, n)), True
