"""Decode: one loop for every kind of model and any batch, as a generator that yields each token when it is chosen.

    prompts -> prefill -> choose -> yield -> rows that ended leave the batch -> step -> choose -> ...

Padding is on the left, so that every row's last token stands in the last chunk; nothing outside can tell. A row that
has ended is taken out of the batch and of the cache: it costs nothing and touches nobody.
"""

# b rows still being written, n prompt length

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plait.generation.padding import padded
from plait.generation.records import Piece
from plait.generation.row import Request, Row, Score, at_least_float32, choose_next, score
from plait.generation.runner import Runner

if TYPE_CHECKING:
    from plait.text import Tokenizer


@torch.inference_mode()
def decode(
    runner: Runner,
    requests: Sequence[Request],
    *,
    tokenizer: Tokenizer | None = None,
    preallocate: bool = True,
    chunk: int | None = None,
) -> Iterator[tuple[int, Piece]]:
    """Write every request to its end: ``(which request, piece)`` for each token, a step's rows one after the other.

    Each row is what it would be alone. ``preallocate``: the cache takes its full size at once. ``chunk``: prompts are
    read this many tokens at a time.
    """
    if not requests:
        return
    rows = list(enumerate(Row(request, tokenizer) for request in requests))
    longest, k = max(len(r.tokens) for r in requests), max(r.alternatives for r in requests)
    cache = runner.cache(
        len(rows),
        capacity=longest + max(r.limit for r in requests) if preallocate else None,
        total_lengths=[len(r.tokens) + r.limit for r in requests],
    )
    logits, prompt_scores = prefill(runner, cache, requests, chunk or longest, k)
    for index, row in rows:
        for piece in echoed(row, prompt_scores[index]):
            yield index, piece

    while True:
        chosen = choose_next(logits, [row for _, row in rows])
        scores = score(logits[:, None], chosen[:, None], k)
        going: list[int] = []
        for place, ((index, row), token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
            piece = row.piece(token, *scores[place][0])
            if piece.finish is None:
                going.append(place)
            yield index, piece
        if not going:
            return
        if len(going) < len(rows):
            kept = torch.tensor(going, device=chosen.device)
            rows, chosen = [rows[place] for place in going], chosen[kept]
            cache.reorder(kept)
        logits = at_least_float32(runner.step(chosen, cache))


def prefill(
    runner: Runner, cache: object, requests: Sequence[Request], chunk: int, k: int, never: Sequence[int] = ()
) -> tuple[Tensor, list[list[Score]]]:
    """Read the prompts: logits after the last token of each, ``(b, vocab)``; and where some request echoes its own, the
    scores of every prompt's tokens but the first, with the k likeliest in their place, among all tokens but those that
    are ``never`` said."""
    tokens, mask = padded([r.tokens for r in requests], runner.device, side="left")  # b n
    source = source_mask = positions = None
    if requests[0].source is not None:
        source, source_mask = padded([r.source or () for r in requests], runner.device, side="left")
    if any(r.positions is not None for r in requests):
        positions, _ = padded([r.positions or range(len(r.tokens)) for r in requests], runner.device, side="left")
    echo = any(r.echo for r in requests)
    scores: list[list[Score]] = [[] for _ in requests]
    logits = torch.empty(0)
    for start in range(0, tokens.shape[1], chunk):
        part = slice(start, start + chunk)
        logits = runner.prefill(
            tokens[:, part],
            cache,
            mask=None if mask is None else mask[:, part],
            source=source if start == 0 else None,
            source_mask=source_mask if start == 0 else None,
            positions=None if positions is None else positions[:, part],
            last_only=not echo,
        )
        if echo:
            following = tokens[:, start + 1 : start + 1 + chunk]
            said = at_least_float32(logits[:, : following.shape[1]])
            if never:
                said = said.index_fill(-1, torch.tensor(never, device=said.device), float("-inf"))
            found = score(said, following, k)
            scores = [[*before, *new] for before, new in zip(scores, found, strict=True)]
    longest = tokens.shape[1]
    tails = [of_row[longest - len(r.tokens) :] for of_row, r in zip(scores, requests, strict=True)]  # without padding
    return at_least_float32(logits[:, -1]), tails


def echoed(row: Row, scores: Sequence[Score]) -> Iterator[Piece]:
    """The pieces of a prompt's own tokens, where the request wants them: the first has no score."""
    if row.request.echo:
        for token, (value, others) in zip(row.request.tokens, [(None, ()), *scores], strict=True):
            yield row.piece(token, value, others, new=False)
