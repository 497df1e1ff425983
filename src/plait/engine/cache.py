"""The engine's cache: for each row of a batch, a run of pages in the runner's storage. Rows hold no padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from plait.engine.lock import RunnerLock
from plait.engine.pages import PAGE, Pages, Run
from plait.model.cache import CacheFull


@dataclass
class Row:
    """A sequence: its own tokens, an encoder's states where there is one, and how long it will become, if declared."""

    own: Run
    memory: Run | None = None
    total: int | None = None

    def fork(self) -> Row:
        """The same on the same pages."""
        return Row(self.own.fork(), None if self.memory is None else self.memory.fork(), self.total)


class EngineCache:
    """Rows in pages that may be shared; made by a runner, which alone writes into it and whose lock they are under."""

    def __init__(
        self, pages: Pages, lock: RunnerLock, batch: int, capacity: int | None, total_lengths: Sequence[int] | None
    ) -> None:
        for name, value in (("batch", batch), ("capacity", capacity)):
            if value is not None and (not isinstance(value, int) or value < 0):
                raise ValueError(f"{name}: {value!r} makes no sense; give a whole number from 0.")
        if total_lengths is not None and len(total_lengths) != batch:
            raise ValueError(f"total_lengths: {len(total_lengths)} of them do not fit {batch} rows.")
        self.capacity, self.pages, self._lock = capacity, pages, lock
        totals = [None] * batch if total_lengths is None else [int(n) for n in total_lengths]
        self.rows = [Row(Run(pages, capacity or PAGE), total=total) for total in totals]
        if capacity is not None:
            with lock:
                pages.reserve(batch * -(-capacity // PAGE))

    @property
    def batch(self) -> int:
        """How many rows."""
        return len(self.rows)

    @property
    def lengths(self) -> Tensor:
        """Tokens in each row, ``(b,)`` int64."""
        return torch.tensor([row.own.length for row in self.rows])

    @property
    def nbytes(self) -> int:
        """Bytes of the pages held; a page that several rows share counts once."""
        held: dict[int, set[int]] = {}
        storage: dict[int, Pages] = {}
        for row in self.rows:
            for run in (row.own, row.memory):
                if run is not None:
                    storage[id(run.pages)] = run.pages
                    held.setdefault(id(run.pages), set()).update(run.table[: -(-run.length // PAGE)].tolist())
        return sum(storage[key].page_bytes * len(pages) for key, pages in held.items())

    def check_room(self, row: int, n: int) -> None:
        """``CacheFull`` where so many more tokens do not fit."""
        length = self.rows[row].own.length
        if self.capacity is not None and length + n > self.capacity:
            raise CacheFull(f"cache: {length} tokens and {n} more exceed its capacity of {self.capacity}.")

    def truncate(self, lengths: int | Tensor) -> None:
        """Forget all but the first ``lengths`` tokens of each row."""
        wanted = torch.as_tensor(lengths)
        if wanted.is_floating_point():
            raise ValueError(f"truncate: {wanted.tolist()} are not whole numbers of tokens.")
        if wanted.ndim and len(wanted) != self.batch:
            raise ValueError(f"truncate: {len(wanted)} lengths do not fit {self.batch} rows.")
        wanted = wanted.expand(self.batch)
        if bool((wanted > self.lengths).any()) or bool((wanted < 0).any()):
            raise ValueError(f"truncate: rows hold {self.lengths.tolist()} tokens, not {wanted.tolist()}.")
        with self._lock:
            for row, length in zip(self.rows, wanted.tolist(), strict=True):
                row.own.truncate(length)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was; rows may repeat or be left out."""
        chosen = rows.tolist()
        if rows.dtype == torch.bool or any(not 0 <= index < self.batch for index in chosen):
            raise ValueError(f"reorder: {chosen} are not numbers of rows; there are {self.batch}, counted from 0.")
        taken: set[int] = set()
        new: list[Row] = []
        with self._lock:
            for index in chosen:
                new.append(self.rows[index].fork() if index in taken else self.rows[index])
                taken.add(index)
        self.rows = new

    def fork(self, n: int) -> Self:
        """A cache of its own in which every row stands ``n`` times, side by side, on the same pages."""
        if n < 0:
            raise ValueError(f"fork: {n} times makes no sense; give a number from 0.")
        twin = type(self).__new__(type(self))
        twin.capacity, twin.pages, twin._lock = self.capacity, self.pages, self._lock
        with self._lock:
            twin.rows = [row.fork() for row in self.rows for _ in range(n)]
        return twin
