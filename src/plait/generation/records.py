"""What generation hands out: a Piece for each token, a Generation for each prompt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Finish = Literal["end", "stop", "length"]  # an end id, a stop string, or the limit


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One token as it is streamed.

    ``text`` is what can be shown by now: it may be empty, or hold what earlier tokens had to hold back. ``logprob`` is
    the natural logarithm of the token's probability under the model itself, before any rule or temperature; ``None``
    for the first token of an echoed prompt. ``alternatives`` are the likeliest ``(id, logprob)``, as many as were asked
    for. ``offset`` is where the token's own text starts, in characters. ``finish`` is ``None`` until the last piece.
    """

    text: str
    token: int
    logprob: float | None
    alternatives: tuple[tuple[int, float], ...] = ()
    offset: int = 0
    finish: Finish | None = None


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One prompt's outcome. ``tokens``, ``logprobs``, ``alternatives`` and ``offsets`` have one entry for each new
    token, an end id included; with ``echo`` the prompt's come first, and the text begins with the prompt's.

    Fields are those of ``Piece``; the text is without a stop string and without special tokens. ``score`` is what a
    beam search ranked it by, and ``None`` where there was none.
    """

    text: str
    tokens: list[int]
    logprobs: list[float | None]
    finish: Finish
    prompt_tokens: list[int]
    alternatives: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    score: float | None = None
