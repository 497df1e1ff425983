"""Translation: what becomes of one line, put together from the parts that it was read in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plait.generation.alignment import Pairs
from plait.generation.beam import Found
from plait.generation.records import Finish
from plait.generation.sentences import joined

if TYPE_CHECKING:
    from plait.text import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """One line's outcome. ``text`` is one line too: a newline that was written is a space.

    ``score`` is what a beam search ranked it by, the sum over parts. ``candidates``: with ``n_best``, texts and scores,
    best first, of which ``text`` is the first; of a line in parts each joins its parts' candidates of the same rank.
    ``parts``: how many the line was cut into, 0 for a blank one. ``finish``: ``"length"`` where a part was cut off at
    its limit. With ``alignments``: the tokens of both sides without special ones, and the pairs ``(i, j)`` of places in
    them.
    """

    text: str
    score: float | None = None
    candidates: tuple[tuple[str, float | None], ...] = ()
    parts: int = 0
    finish: Finish = "end"
    alignment: Pairs = ()
    source_tokens: tuple[str, ...] = ()
    target_tokens: tuple[str, ...] = ()


@dataclass
class Part:
    """What is translated at once: all of a line, or some of it; and what came of it, best first."""

    text: str
    tokens: list[int]
    found: list[Found] = field(default_factory=list[Found])
    alignment: Pairs = ()  # of ``places``
    places: tuple[Sequence[int], Sequence[int]] = ((), ())  # of source and of target, special tokens aside

    @property
    def written(self) -> list[int]:
        """The ids of the best."""
        return [piece.token for piece in self.found[0].pieces]


def assemble(parts: Sequence[Part], *, candidates: bool) -> Translation:
    """The translation of a line in parts; of a blank one there are none."""
    if not parts:
        return Translation(text="", candidates=(("", None),) if candidates else ())
    ranks = max(len(part.found) for part in parts) if candidates else 1
    found = [_candidate([p.found[min(rank, len(p.found) - 1)] for p in parts]) for rank in range(ranks)]
    cut_off = any(part.found[0].pieces[-1].finish == "length" for part in parts)
    return Translation(
        text=found[0][0],
        score=found[0][1],
        candidates=tuple(found) if candidates else (),
        parts=len(parts),
        finish="length" if cut_off else "end",
    )


def aligned(one: Translation, parts: Sequence[Part], tokenizer: Tokenizer, writer: Tokenizer) -> Translation:
    """The same with its parts' alignments, and the tokens whose places they are."""
    alignment: list[tuple[int, int]] = []
    source: list[str] = []
    target: list[str] = []
    for part in parts:
        alignment += [(len(source) + i, len(target) + j) for i, j in part.alignment]
        source += [tokenizer.token(part.tokens[place]) for place in part.places[0]]
        target += [writer.token(part.written[place]) for place in part.places[1]]
    return replace(one, alignment=tuple(alignment), source_tokens=tuple(source), target_tokens=tuple(target))


def _candidate(found: Sequence[Found]) -> tuple[str, float | None]:
    """The parts' texts as one line, and the sum of their scores."""
    text = joined("".join(piece.text for piece in one.pieces) for one in found)
    scores = [one.score for one in found if one.score is not None]
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " "), sum(scores) if scores else None
