"""Contrastive: pairs of texts that should lie close, among others that should not: those of the same micro-batch.

    rows       a0 a1 a2 b0 b1 b2          first texts, then second ones
    targets     3  4  5  0  1  2          the row that each should be nearest to, of all but itself

What is asked of a pair depends on the others beside it, so micro-batches are groups that stay whole: ranks are dealt
groups, not rows, and any number of them computes the same. More micro-batches are fewer others, and another objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from plait.data.batch import Batch
from plait.data.error import DataError
from plait.data.rows import Rows, padded
from plait.data.samples import Numbers


@dataclass(frozen=True, eq=False)
class Contrastive:
    """An objective for a model that embeds.

    Args:
        first, second: ids of the texts of each pair, with all that goes around them; ``encode_pairs`` reads them.
        pad: fills rows; no place with it counts, whatever it means elsewhere.

    Raises DataError for different numbers of texts.
    """

    first: Rows
    second: Rows
    pad: int = 0
    whole = True

    def __post_init__(self) -> None:
        if len(self.first) != len(self.second):
            raise DataError(f"pairs: there are {len(self.first)} first texts and {len(self.second)} second ones.")

    @property
    def sizes(self) -> Sequence[Numbers]:
        """Tokens of each first and second text."""
        return self.first.lengths, self.second.lengths

    def batch(self, rows: Numbers, epoch: int) -> Batch:
        """Some pairs, alike in every epoch."""
        tokens, mask = padded([side[row] for side in (self.first, self.second) for row in rows], self.pad)
        n = len(rows)
        return Batch(tokens=tokens, targets=torch.arange(2 * n).roll(n), mask=mask, against="rows")
