"""Subword dropout: tokens taken apart into the two they were merged from, other ones in every epoch, so that a model
meets words in many pieces and learns what the pieces mean.

After BPE-dropout (Provilkov et al. 2020), which leaves out merges while a word is put together; here a finished word's
merges are undone from the last on: a token falls apart with chance ``rate``, and then each of its parts.

Legend: v tokens of the vocabulary, n tokens of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.data.order import draws
from plait.data.rows import Ids


@dataclass(frozen=True, eq=False)
class Subwords:
    """How tokens fall apart.

    Args:
        parts: ``(v, 2)``, the two tokens that each was merged from; -1 for those that were not.
        rate: the chance that one falls apart.
        seed: of the draws.
        longest: tokens of a row, at most; one that would be longer stays as it is.
    """

    parts: NDArray[np.int64]
    rate: float
    seed: int
    longest: int

    @classmethod
    def of(cls, merged: Mapping[int, tuple[int, int]], rate: float, *, seed: int, longest: int) -> Subwords:
        """From a vocabulary's merges."""
        parts = np.full((max(merged) + 1, 2), -1)
        parts[list(merged)] = list(merged.values())
        return cls(parts, rate, seed, longest)

    def apart(self, ids: Ids, epoch: int, row: int, purpose: str) -> Ids:
        """A row's ids with some taken apart: the same for equal seed, epoch, row and ``purpose``."""
        chance, found = draws(self.seed, epoch, row, purpose), np.asarray(ids, np.int64)
        new = np.ones(len(found), bool)  # those that were not asked yet
        while True:
            falls = new & self._merged(found) & (chance.random(len(found)) < self.rate)
            if not falls.any():
                return found if len(found) <= self.longest else ids
            counts = np.where(falls, 2, 1)
            last = counts.cumsum() - 1
            new, pieces = np.repeat(falls, counts), np.repeat(found, counts)
            pieces[last[falls] - 1], pieces[last[falls]] = self.parts[found[falls]].T
            found = pieces

    def closure(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sorted ids with all that they can fall apart into."""
        while True:
            parts = self.parts[ids[self._merged(ids)]]
            wider = np.union1d(ids, parts)
            if len(wider) == len(ids):
                return wider
            ids = wider

    def _merged(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        known = ids < len(self.parts)
        return known & (self.parts[np.where(known, ids, 0), 0] >= 0)
