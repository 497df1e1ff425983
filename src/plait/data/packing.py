"""Packing: rows of one length cut from tokens that stand in one long row, for a model that says the next token.

    documents   blocks of the long row, in shuffled order; the mask numbers the documents in each, so that they see
                nothing of each other and each counts its positions from 0; the last token of one is not asked for the
                first of the next
    stream      the same blocks without borders: one endless text
    windows     rows at random places of the endless text, as in nanoGPT

Every block is where its number says, so any step is read at once. The last block reaches back, to be as long as
the others; what it shares with the block before is read, and not asked again.

Legend: b rows, n tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from plait.data.batch import UNCOUNTED, Batch
from plait.data.error import DataError
from plait.data.order import draws, shuffled
from plait.data.tokens import Tokens

Packing = Literal["documents", "stream", "windows"]


@dataclass(frozen=True, kw_only=True)
class CausalStream:
    """A ``Stream`` of next tokens.

    Args:
        tokens: what is read.
        length: tokens in a row; less where there are fewer.
        rows: rows in a step, those of all processes and micro-batches.
        packing: see above.
        micro_batches: parts of a step.
        seed: of order and places.
        evaluation_rows: rows in a batch of ``evaluation``; none: those of a micro-batch.
    """

    tokens: Tokens
    length: int
    rows: int
    packing: Packing = "documents"
    micro_batches: int = 1
    seed: int = 0
    evaluation_rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("length", "rows", "micro_batches"):
            if getattr(self, name) < 1:
                raise DataError(f"{name}: it is {getattr(self, name)}, and must be 1 at least.")
        if self.packing not in ("documents", "stream", "windows"):
            raise DataError(f"packing: {self.packing!r} is not one of documents, stream, windows.")
        if len(self.tokens) < 2:
            raise DataError(f"data: {len(self.tokens)} token in all leaves nothing to predict; give more text.")

    @cached_property
    def n(self) -> int:
        """Tokens in a row that there are."""
        return min(self.length, len(self.tokens) - 1)

    @cached_property
    def blocks(self) -> int:
        """How many blocks hold every target once."""
        return -(-(len(self.tokens) - 1) // self.n)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps until every block was read, or as many windows. The epochs follow each other without a gap: a
        step may have the last rows of one and the first of the next."""
        return -(-self.blocks // self.rows)

    def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """The micro-batches of a step: see ``Stream``."""
        if self.packing == "windows":
            places = draws(self.seed, 0, index, "windows").integers(0, len(self.tokens) - self.n, self.rows)
            return self._dealt(places, np.zeros(self.rows, np.int64), rank, world)
        epochs, positions = np.divmod(np.arange(index * self.rows, (index + 1) * self.rows), self.blocks)
        chosen = np.empty(self.rows, np.int64)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            inside = epochs == epoch
            chosen[inside] = shuffled(positions[inside], self.blocks, seed=self.seed, epoch=epoch)
        return self._dealt(*self._cut(chosen), rank, world)

    def evaluation(self, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Every target once, in order, in blocks also where training reads windows."""
        rows = self.evaluation_rows or -(-self.rows // self.micro_batches)
        mine = range(rank, self.blocks, world)
        for at in range(0, len(mine), rows):
            yield self._batch(*self._cut(np.array(mine[at : at + rows])))

    def facts(self) -> dict[str, int | float]:
        """What was read and left out, as the store counted it; rows are full, so ``padding`` is nothing."""
        documents = self.tokens.n_documents
        apart = documents if self.packing == "documents" else 1  # the first token of each is not asked for
        counts = {**self.tokens.counts, "documents": documents, "tokens": len(self.tokens)}
        return {**counts, "targets": len(self.tokens) - apart, "rows_in_an_epoch": self.blocks, "padding": 0.0}

    def _cut(self, blocks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where blocks begin, and how many of their first targets belong to the block before."""
        places = np.minimum(blocks * self.n, len(self.tokens) - 1 - self.n)
        return places, blocks * self.n - places

    def _dealt(self, places: NDArray[np.int64], shared: NDArray[np.int64], rank: int, world: int) -> list[Batch]:
        mine = np.arange(rank, self.rows, world)
        parts = np.array_split(mine, self.micro_batches)
        return [self._batch(places[part], shared[part]) for part in parts if len(part)]

    def _batch(self, places: NDArray[np.int64], shared: NDArray[np.int64]) -> Batch:
        rows = np.stack([self.tokens.read(place, place + self.n + 1) for place in places.tolist()])  # b n+1
        tokens, targets = rows[:, :-1], rows[:, 1:].copy()
        targets[np.arange(self.n) < shared[:, None]] = UNCOUNTED
        mask = None
        if self.packing == "documents" and self.tokens.n_documents > 1:
            documents = np.zeros_like(rows)
            for row, place in enumerate(places.tolist()):
                borders = self.tokens.borders(place, place + self.n + 1) - place
                np.add.at(documents[row], borders, 1)
            documents = documents.cumsum(axis=1) + 1
            targets[documents[:, 1:] != documents[:, :-1]] = UNCOUNTED
            mask = torch.from_numpy(documents[:, :-1].copy())
        return Batch(tokens=torch.from_numpy(tokens.copy()), targets=torch.from_numpy(targets), mask=mask)
