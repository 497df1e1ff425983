"""Tokens: the shards of a store as one row of numbers, and where documents begin in it; nothing is read until asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from plait.data.documents import Counts
from plait.data.error import DataError
from plait.data.shards import Shard


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokens:
    """The tokens from ``start`` to ``stop`` of ``shards``, counted from 0 here.

    ``bounds`` and ``documents_before`` say which tokens and documents each shard begins with, and at the end how many
    there are; ``counts`` what was left out.
    """

    shards: Sequence[Shard]
    bounds: NDArray[np.int64]
    documents_before: NDArray[np.int64]
    counts: Mapping[str, int]
    start: int
    stop: int

    @classmethod
    def of(cls, shards: Sequence[Shard], counts: Counts) -> Self:
        """All of a store."""
        bounds = np.cumsum([0, *(shard.footer.tokens for shard in shards)])
        before = np.cumsum([0, *(shard.footer.documents for shard in shards)])
        numbers = {name: value for name, value in asdict(counts).items() if isinstance(value, int)}
        return cls(shards=shards, bounds=bounds, documents_before=before, counts=numbers, start=0, stop=int(bounds[-1]))

    def saying(self, **counts: int) -> Self:
        """The same with further counts."""
        return replace(self, counts={**self.counts, **counts})

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """The tokens from ``start`` to ``stop``."""
        found = np.empty(stop - start, np.int64)
        at, last = self.start + start, self.start + stop
        shard = int(np.searchsorted(self.bounds, at, "right")) - 1
        while at < last:
            end = min(last, int(self.bounds[shard + 1]))
            base = int(self.bounds[shard])
            found[at - self.start - start : end - self.start - start] = self.shards[shard].tokens[
                at - base : end - base
            ]
            at, shard = end, shard + 1
        return found

    # Documents

    @cached_property
    def n_documents(self) -> int:
        """How many begin here, and the one that has begun before."""
        return self._before(self.stop) - self._first

    def document(self, number: int) -> tuple[int, int]:
        """Where a document, counted from 0, begins and ends here."""
        if not 0 <= number < self.n_documents:
            raise DataError(f"document: it is {number}, and must be from 0 to {self.n_documents - 1}.")
        begin, end = (self._start_of(self._first + n) for n in (number, number + 1))
        return max(begin, self.start) - self.start, min(end, self.stop) - self.start

    def borders(self, start: int, stop: int) -> NDArray[np.int64]:
        """Where documents begin after ``start`` and before ``stop``."""
        numbers = range(self._before(self.start + start + 1), self._before(self.start + stop))
        return self._starts_of(numbers) - self.start

    def split(self, fraction: float) -> tuple[Self, Self]:
        """All but the last ``fraction`` of the tokens, and those; between two documents, unless the one in which the
        border falls is longer than the smaller part."""
        border = int(self.start + len(self) * (1 - fraction))
        begin, end = (self._start_of(self._before(border + 1) + n) for n in (-1, 0))
        smaller = min(border - self.start, self.stop - border)
        if end - begin <= smaller:
            border = begin if border - begin < end - border else end
        if min(border - self.start, self.stop - border) < 2:
            raise DataError(f"valid_fraction: {fraction} of {len(self)} tokens leaves one part without two of them.")
        return replace(self, stop=border), replace(self, start=border)

    @cached_property
    def _first(self) -> int:
        """The number in the store of the document that the first token belongs to."""
        return self._before(self.start + 1) - 1

    def _before(self, place: int) -> int:
        """How many documents of the store begin before a token of it."""
        shard = min(int(np.searchsorted(self.bounds, place, "left")) - 1, len(self.shards) - 1)
        if shard < 0:
            return 0
        inside = np.searchsorted(self.shards[shard].starts, place - int(self.bounds[shard]), "left")
        return int(self.documents_before[shard]) + int(inside)

    def _start_of(self, number: int) -> int:
        if number >= self.documents_before[-1]:
            return int(self.bounds[-1])
        return int(self._starts_of(range(number, number + 1))[0])

    def _starts_of(self, numbers: range) -> NDArray[np.int64]:
        """Where documents of the store begin in it."""
        found: list[NDArray[np.int64]] = []
        at = numbers.start
        shard = int(np.searchsorted(self.documents_before, at, "right")) - 1
        while at < numbers.stop:
            end = min(numbers.stop, int(self.documents_before[shard + 1]))
            base = int(self.documents_before[shard])
            found.append(np.asarray(self.shards[shard].starts[at - base : end - base]) + self.bounds[shard])
            at, shard = end, shard + 1
        return np.concatenate(found) if found else np.empty(0, np.int64)
