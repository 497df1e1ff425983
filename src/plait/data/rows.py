"""Rows: token ids of many samples, of any lengths, one after the other in one array; and rows side by side, padded.

Legend: b rows, n tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.data.batch import UNCOUNTED
from plait.data.error import DataError
from plait.data.tokens import Tokens

Ids = NDArray[np.integer[Any]]


class Rows(Protocol):
    """Samples by number: their ids, and how many each has."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every row."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Ids: ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """Ids in one array."""

    ids: Ids

    def read(self, start: int, stop: int) -> Ids:
        """Those from ``start`` to ``stop``."""
        return self.ids[start:stop]


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row i is ``read(begins[i], ends[i])``, from an array, or from the mapped files of a store."""

    read: Callable[[int, int], Ids]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        """Rows given one by one, which are read once and kept in memory."""
        growing = Growing()
        for row in rows:
            growing.append(row)
        return growing.rows()

    @classmethod
    def documents(cls, tokens: Tokens) -> Ragged:
        """The documents of a store."""
        edges = np.concatenate(([0], tokens.borders(0, len(tokens)), [len(tokens)])).astype(np.int64)
        return cls(tokens.read, edges[:-1], edges[1:])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every row."""
        return self.ends - self.begins

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, row: int, /) -> Ids:
        return self.read(int(self.begins[row]), int(self.ends[row]))

    def pieces(self, length: int, *, join: bool = False, least: int = 1) -> Ragged:
        """The same ids in rows of at most ``length``.

        Args:
            length: tokens a row; only the last piece of a document is shorter.
            join: documents are cut as if they were one, for rows that are all alike and may hold several.
            least: pieces of fewer tokens are left out.

        Raises DataError where no row is left, and for documents to join that do not stand one behind the other.
        """
        if not 0 < least <= length:
            raise DataError(f"length: rows of at most {length} tokens cannot all have {least} or more.")
        begins, ends = self.begins, self.ends
        if join:
            if (begins[1:] != ends[:-1]).any():
                raise DataError("join: these rows leave out some of their ids; join the documents they were cut from.")
            begins, ends = begins[:1], ends[-1:]
        pieces = -(-(ends - begins) // length)
        number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)  # of a piece in its document
        starts = np.repeat(begins, pieces) + number * length
        stops = np.minimum(starts + length, np.repeat(ends, pieces))
        kept = stops - starts >= least
        if not kept.any():
            raise DataError(f"data: it has no document of {least} tokens or more.")
        return Ragged(self.read, starts[kept], stops[kept])


class Growing:
    """Rows in memory, to which others are added: four bytes an id."""

    def __init__(self) -> None:
        self._ids, self._ends = array("i"), array("q")

    def append(self, row: Sequence[int]) -> None:
        """Add a row."""
        self._ids.extend(row)
        self._ends.append(len(self._ids))

    def rows(self) -> Ragged:
        """Those added so far."""
        ends = np.array(self._ends, np.int64)
        return Ragged(InMemory(np.array(self._ids, np.int32)).read, ends - np.diff(ends, prepend=0), ends)


def padded(rows: Sequence[Ids], fill: int) -> tuple[Tensor, Tensor]:
    """Rows as ``(b, n)`` int64 with ``fill`` behind the shorter ones, and which cells are real.

    By length and never by id: an id that also fills is a token like any other (a text's end, in many vocabularies).
    """
    lengths = np.array([len(row) for row in rows], np.int64)
    real = np.arange(lengths.max(initial=0)) < lengths[:, None]
    cells = np.full(real.shape, fill, np.int64)
    if len(rows):
        cells[real] = np.concatenate(rows)
    return torch.from_numpy(cells), torch.from_numpy(real)


def teacher_forced(said: Sequence[Ids], start: int, fill: int) -> tuple[Tensor, Tensor, Tensor]:
    """What a decoder reads to say some rows, one token later, from its start token on; what it is asked; which cells
    are real. All ``(b, n)``."""
    rows, real = padded(said, fill)
    tokens = torch.full_like(rows, start)
    tokens[:, 1:] = rows[:, :-1]
    return tokens.masked_fill(~real, fill), rows.masked_fill(~real, UNCOUNTED), real
