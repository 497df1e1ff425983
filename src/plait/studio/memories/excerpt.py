"""Excerpt: what a page keeps of a corpus: the tokens around triggers, and which of its places each trigger has there.

Tokens are numbers of a vocabulary of the page's own, so that they are small. Two more numbers part them: ``row`` where
the model began to read anew, and ``end`` where a text ends or tokens are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.inspection.memory import Lane
from plait.text import Tokenizer

BEFORE, AFTER = 24, 8  # tokens around a trigger

Numbers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Excerpt:
    """``tokens`` of a lane's corpus by their numbers in ``ids``, in which ``row`` and ``end`` come next; ``starts`` and
    ``stops`` are the places that were kept, and ``at`` where each stretch begins here."""

    ids: Numbers
    tokens: Numbers
    starts: Numbers
    stops: Numbers
    begins: Numbers  # of rows, within stretches
    at: Numbers

    @classmethod
    def of(cls, lane: Lane, places: Numbers, others: Numbers) -> Excerpt:
        """Around ``places``; ``others`` are ids that the page needs besides."""
        starts, stops = _stretches(lane, np.unique(places[places >= 0]))
        begins = lane.rows.begins
        begins = begins[_inside(begins, starts, stops)]  # where a row begins and nothing else does
        read = [lane.rows.read(int(a), int(b)).astype(np.int64) for a, b in zip(starts, stops, strict=True)]
        ids = np.unique(np.concatenate([*read, others]))
        row, end = len(ids), len(ids) + 1
        parts: list[Numbers] = []
        for a, b, tokens in zip(starts, stops, read, strict=True):
            own = begins[np.searchsorted(begins, a) : np.searchsorted(begins, b)]
            parts += [np.insert(np.searchsorted(ids, tokens), own - a, row), np.array([end])]
        lengths = stops - starts + np.searchsorted(begins, stops) - np.searchsorted(begins, starts) + 1
        return cls(
            ids=ids,
            tokens=np.concatenate([np.array([end]), *parts]),
            starts=starts,
            stops=stops,
            begins=begins,
            at=1 + np.cumsum(lengths) - lengths,
        )

    def number(self, ids: Numbers) -> Numbers:
        """Ids as numbers of the page's vocabulary."""
        return np.searchsorted(self.ids, ids)

    def place(self, places: Numbers) -> Numbers:
        """Where places of the corpus are here; 0, where there is no token, for those that are none."""
        known = places >= 0
        asked = np.where(known, places, self.starts[0] if len(self.starts) else 0)
        stretch = np.searchsorted(self.starts, asked, "right") - 1
        rows = np.searchsorted(self.begins, asked, "right") - np.searchsorted(self.begins, self.starts[stretch])
        return np.where(known, self.at[stretch] + asked - self.starts[stretch] + rows, 0)

    def vocabulary(self, tokenizer: Tokenizer) -> list[str | list[int]]:
        """What each of ``ids`` spells: text, or bytes that are a part of a character."""
        return [piece(int(id), tokenizer) for id in self.ids]


def piece(id: int, tokenizer: Tokenizer) -> str | list[int]:
    """What an id spells in the middle of a text; what is no text as the vocabulary has it, or its number."""
    if id >= len(tokenizer):
        return f"⟨{id}⟩"
    if id in tokenizer.special_ids:
        return tokenizer.token(id)
    raw = tokenizer.segmenter.spell(id, False)
    try:
        return raw.decode() or tokenizer.token(id)
    except UnicodeDecodeError:
        return list(raw)


def _stretches(lane: Lane, places: Numbers) -> tuple[Numbers, Numbers]:
    """Where what is around sorted places begins and ends, joined where it touches, each within one text."""
    begins, ends = lane.documents.begins, lane.documents.ends
    document = np.searchsorted(ends, places, "right")
    starts = np.maximum(places - BEFORE, begins[document])
    stops = np.minimum(places + AFTER + 1, ends[document])
    if not len(places):
        return starts, stops
    new = np.ones(len(places), bool)
    new[1:] = (starts[1:] > np.maximum.accumulate(stops)[:-1]) | (document[1:] != document[:-1])
    first = np.flatnonzero(new)
    return starts[first], np.maximum.reduceat(stops, first)


def _inside(begins: Numbers, starts: Numbers, stops: Numbers) -> Sequence[bool] | NDArray[np.bool_]:
    stretch = np.searchsorted(starts, begins, "right") - 1
    return (stretch >= 0) & (begins > starts[stretch]) & (begins < stops[stretch])
