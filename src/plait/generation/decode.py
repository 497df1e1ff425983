"""Decode: one loop for every kind of model and any batch, as a generator that yields each token when it is chosen.

    prompts -> prefill -> choose -> yield -> rows that ended leave the batch -> step -> choose -> ...

Padding is on the left, so that every row's last token stands in the last chunk; nothing outside can tell. A row that
has ended is taken out of the batch and of the cache: it costs nothing and touches nobody.
"""

# b rows still being written, n prompt length

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plait.generation.padding import padded
from plait.generation.records import Finish, Piece
from plait.generation.rules import Line, LogitRules
from plait.generation.runner import Runner
from plait.generation.sampling import choose, logprob
from plait.generation.settings import Settings
from plait.generation.transcript import Transcript

if TYPE_CHECKING:
    from plait.text import Tokenizer

Alternatives = tuple[tuple[int, float], ...]
_Scores = list[list[tuple[float, Alternatives]]]  # for each row, for each token


@dataclass(frozen=True, kw_only=True)
class Request:
    """One row: what is read first (a prompt; the start token of an encoder-decoder), and how far to go on from it."""

    tokens: Sequence[int]
    limit: int  # new tokens at most
    source: Sequence[int] | None = None  # what an encoder reads
    positions: Sequence[int] | None = (
        None  # of ``tokens``, where they do not count up from 0; new ones go on from the last
    )
    seed: int | None = None  # None: another one every time


class _Row:
    """A request under way."""

    def __init__(self, index: int, request: Request, settings: Settings, transcript: Transcript) -> None:
        self.index, self.settings, self.transcript = index, settings, transcript
        self.line = Line(list(request.tokens), len(request.tokens), request.limit)
        seed = random.getrandbits(63) if request.seed is None else request.seed
        self.generator = torch.Generator().manual_seed(seed)

    def piece(self, token: int, logprob: float | None, alternatives: Alternatives, *, new: bool = False) -> Piece:
        """The piece that a token makes; a new one joins the row, and may be its last."""
        offset = self.transcript.length
        ended = new and token in self.settings.end
        text = "" if ended else self.transcript.push(token) if new else self.transcript.echo(token)
        finish: Finish | None = None
        if new:
            self.line.tokens.append(token)
            if ended or self.transcript.stopped or self.line.n_new == self.line.limit:
                text += self.transcript.close()
                finish = "stop" if self.transcript.stopped else "end" if ended else "length"
        return Piece(text=text, token=token, logprob=logprob, alternatives=alternatives, offset=offset, finish=finish)


@torch.inference_mode()
def decode(
    runner: Runner,
    requests: Sequence[Request],
    settings: Settings,
    *,
    tokenizer: Tokenizer | None = None,
    preallocate: bool = True,
    chunk: int | None = None,
    echo: bool = False,
    alternatives: int = 0,
) -> Iterator[tuple[int, Piece]]:
    """Write every request to its end: ``(which request, piece)`` for each token, a step's rows one after the other.

    Each row is what it would be alone. ``preallocate``: the cache takes its full size at once. ``chunk``: prompts are
    read this many tokens at a time. ``echo``: the prompts' own tokens come first, scored. ``alternatives``: how many of
    the likeliest tokens are reported with each.
    """
    if not requests:
        return
    rows = [
        _Row(i, r, settings, Transcript(tokenizer, settings.stop, () if echo or r.source is not None else r.tokens))
        for i, r in enumerate(requests)
    ]
    longest = max(len(r.tokens) for r in requests)
    cache = runner.cache(
        len(rows),
        capacity=longest + max(r.limit for r in requests) if preallocate else None,
        total_lengths=[len(r.tokens) + r.limit for r in requests],
    )
    prompt_scores: list[_Scores] | None = [] if echo else None
    logits = _prefill(runner, cache, requests, chunk or longest, prompt_scores, alternatives)
    if prompt_scores is not None:
        for place, row in enumerate(rows):
            tail = [score for part in prompt_scores for score in part[place]][longest - len(row.line.tokens) :]
            for token, (value, others) in zip(list(row.line.tokens), [(None, ()), *tail], strict=True):
                yield row.index, row.piece(token, value, others)

    rules = LogitRules(settings, [row.line for row in rows], logits.shape[-1], logits.device)
    while True:
        chosen = choose(rules(logits, [row.line for row in rows]), settings, [row.generator for row in rows])
        scores = _score(logits[:, None], chosen[:, None], alternatives)
        going: list[int] = []
        for place, (row, token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
            piece = row.piece(token, *scores[place][0], new=True)
            if piece.finish is None:
                going.append(place)
            yield row.index, piece
        if not going:
            return
        rules.remember(chosen)
        if len(going) < len(rows):
            kept = torch.tensor(going, device=chosen.device)
            rows, chosen = [rows[place] for place in going], chosen[kept]
            rules.reorder(kept)
            cache.reorder(kept)
        logits = _at_least_float32(runner.step(chosen, cache))


def _prefill(
    runner: Runner, cache: object, requests: Sequence[Request], chunk: int, prompt_scores: list[_Scores] | None, k: int
) -> Tensor:
    """Read the prompts: logits after the last token of each, ``(b, vocab)``; ``prompt_scores`` takes those before."""
    tokens, mask = padded([r.tokens for r in requests], runner.device, side="left")  # b n
    source = source_mask = positions = None
    if requests[0].source is not None:
        source, source_mask = padded([r.source or () for r in requests], runner.device, side="left")
    if any(r.positions is not None for r in requests):
        positions, _ = padded([r.positions or range(len(r.tokens)) for r in requests], runner.device, side="left")
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
            last_only=prompt_scores is None,
        )
        if prompt_scores is not None:
            following = tokens[:, start + 1 : start + 1 + chunk]
            prompt_scores.append(_score(_at_least_float32(logits[:, : following.shape[1]]), following, k))
    return _at_least_float32(logits[:, -1])


def _score(logits: Tensor, tokens: Tensor, k: int) -> _Scores:
    """For each of ``tokens`` ``(b, n)`` under ``logits`` ``(b, n, vocab)``: its logprob, and the k likeliest there."""
    logprobs = logprob(logits, tokens).tolist()
    if k == 0:
        return [[(value, ()) for value in row] for row in logprobs]
    top = logits.log_softmax(-1).topk(min(k, logits.shape[-1]))
    ids, values = top.indices.tolist(), top.values.tolist()
    return [
        [(value, tuple(zip(*others, strict=True))) for value, *others in zip(*row, strict=True)]
        for row in zip(logprobs, ids, values, strict=True)
    ]


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
