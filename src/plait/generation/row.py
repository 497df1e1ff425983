"""Row: one sequence while it is written, and the choice of the next token for several that stand side by side.

What is here is the same whether rows are read as one batch (``decode``) or come and go (``Scheduler``).
"""

# b rows, n tokens

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plait.generation.records import Finish, Piece
from plait.generation.rules import Line, LogitRules
from plait.generation.sampling import choose, logprob
from plait.generation.settings import Settings
from plait.generation.threads import on_one_thread
from plait.generation.transcript import Transcript

if TYPE_CHECKING:
    from plait.text import Tokenizer

Alternatives = tuple[tuple[int, float], ...]
Score = tuple[float, Alternatives]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One row: what is read first, and how it goes on from there. The checkpoint's decode rules have no say in it.

    Args:
        tokens: the ids of the prompt, at least one; of an encoder-decoder the start token.
        limit: new tokens at most, an end id included.
        settings: how the next token is chosen, and what ends the row; unless given, greedy, and only by its limit.
        source: the ids that an encoder reads; for an encoder-decoder, and for nothing else.
        positions: of ``tokens``, where they do not count up from 0; new ones go on from the last.
        seed: decides what is drawn; ``None`` is another one every time.
        echo: the prompt's own tokens come first, scored.
        alternatives: how many of the likeliest tokens are reported with each.
    """

    tokens: Sequence[int]
    limit: int
    settings: Settings = Settings()
    source: Sequence[int] | None = None
    positions: Sequence[int] | None = None
    seed: int | None = None
    echo: bool = False
    alternatives: int = 0

    def places(self, start: int, stop: int) -> list[int] | None:
        """The positions of the row's tokens from ``start`` on, where they are not what they would be counted."""
        own = self.positions
        if own is None or start >= len(own):
            return None
        return [own[i] if i < len(own) else own[-1] + 1 + i - len(own) for i in range(start, stop)]


class Row:
    """A request under way."""

    def __init__(self, request: Request, tokenizer: Tokenizer | None) -> None:
        self.request, self.settings = request, request.settings
        self.line = Line(list(request.tokens), len(request.tokens), request.limit, request.source)
        self.rules = LogitRules(self.settings)
        before = () if request.echo or request.source is not None else request.tokens
        self.transcript = Transcript(tokenizer, self.settings.stop, before)
        self.generator = torch.Generator().manual_seed(random.getrandbits(63) if request.seed is None else request.seed)

    def piece(self, token: int, logprob: float | None, alternatives: Alternatives, *, new: bool = True) -> Piece:
        """The piece that a token makes; a new one joins the row, and may be its last."""
        offset = self.transcript.length
        ended = new and token in self.settings.end
        text = "" if ended else self.transcript.push(token) if new else self.transcript.echo(token)
        finish: Finish | None = None
        if new:
            self.line.add(token)
            if ended or self.transcript.stopped or self.line.n_new == self.line.limit:
                text += self.transcript.close()
                finish = "stop" if self.transcript.stopped else "end" if ended else "length"
        kept = alternatives[: self.request.alternatives]
        return Piece(text=text, token=token, logprob=logprob, alternatives=kept, offset=offset, finish=finish)


@on_one_thread
def choose_next(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """``(b, vocab)`` -> ``(b,)`` ids, each row by its own settings and with its own generator. ``GenerationError`` if a
    row is left without any token to choose."""
    alike: dict[Settings, list[int]] = {}
    for place, row in enumerate(rows):
        alike.setdefault(row.settings, []).append(place)
    allowed: list[Tensor] = []  # of all, before anyone draws: a row that is left without a token costs nobody a draw
    for places in alike.values():
        part = logits if len(places) == len(rows) else logits[places]
        allowed.append(rows[places[0]].rules(part, [rows[place].line for place in places]))
    if len(allowed) == 1:
        return choose(allowed[0], rows[0].settings, [row.generator for row in rows])
    chosen = torch.empty(len(rows), dtype=torch.long, device=logits.device)
    for (settings, places), part in zip(alike.items(), allowed, strict=True):
        chosen[places] = choose(part, settings, [rows[place].generator for place in places])
    return chosen


@on_one_thread
def score(logits: Tensor, tokens: Tensor, k: int) -> list[list[Score]]:
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


def at_least_float32(logits: Tensor) -> Tensor:
    """Half precision is no precision to choose in."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
