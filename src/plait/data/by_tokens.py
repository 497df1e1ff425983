"""ByTokens: batches of sequences of like length, as many as a limit of tokens allows, so that little of it is padding.

An epoch's plan, computed once: samples are put together by target length, so many lengths as make a few batches; there
they are sorted by source length, moved a little by chance, so that every epoch has other batches; cut where the next
sample would break the limit; the batches are read in a shuffled order.

    target length    3 3 4 3 4 4 | 5 5 5 5 | 6 7 7 6 8        every second group runs back, so that a batch across
    source length    1 2 3 3 4 6 | 7 5 4 3 | 3 5 6 6 9        a border has sources of like length
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plait.data.error import DataError
from plait.data.order import draws, shuffled

Numbers = NDArray[np.int64]
Counted = Literal["target", "total"]

JITTER = 0.75  # tokens, to either side: enough to mix neighbours in length
GROUP = 4  # batches for which target lengths are put together: fewer, and sources differ; more, and targets do


class ByTokens:
    """A plan by the lengths of samples.

    Args:
        target: tokens of every sample's target, its end included.
        source: those of its source, where there is one.
        batch_tokens: the most cells that a step's targets may have, padding included.
        counted: ``"total"``, for a limit on source and target together.
        seed: of jitter and order.
        jitter: tokens by which source lengths are moved at most before they are sorted; 0: never other batches.

    Raises DataError for no sample, and for one that does not fit by itself.
    """

    def __init__(
        self,
        target: Numbers,
        source: Numbers | None = None,
        *,
        batch_tokens: int,
        counted: Counted = "target",
        seed: int = 0,
        jitter: float = JITTER,
    ) -> None:
        if not len(target):
            raise DataError("data: there is no sample to make batches of.")
        self.target = np.asarray(target, np.int64)
        self.source = np.zeros_like(self.target) if source is None else np.asarray(source, np.int64)
        self._counted = [self.target, self.source] if counted == "total" else [self.target]
        self.batch_tokens, self.seed, self.jitter = batch_tokens, seed, jitter
        sizes = sum(self._counted)
        if (most := int(np.max(sizes))) > batch_tokens:
            raise DataError(
                f"batch_tokens: sample {int(np.argmax(sizes))} has {most} tokens, more than the {batch_tokens} of a "
                "batch; cut long samples, leave them out, or allow more."
            )
        self._plans: dict[int, list[Numbers]] = {}
        # Every epoch has as many steps, so that a step's epoch is known by dividing; one in a hundred is to spare.
        count = max(len(self._batches(0, jitter)), len(self._batches(0, 0.0)))
        self._steps = min(count + count // 100 + 1, len(target))

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every sample was read once."""
        return self._steps

    def rows(self, epoch: int, place: int) -> Numbers:
        """The samples of one step of an epoch."""
        return self._plan(epoch)[shuffled(place, self._steps, seed=self.seed, epoch=epoch)]

    def in_order(self) -> Iterator[Numbers]:
        """Every sample once."""
        order = np.arange(len(self.target))
        edges = self._edges(order)
        yield from (order[start:end] for start, end in zip(edges, edges[1:], strict=False))

    def _plan(self, epoch: int) -> list[Numbers]:
        """An epoch's batches, shortest first; the plans of two epochs are kept, for who reads ahead."""
        if epoch not in self._plans:
            jitter = self.jitter
            while len(batches := self._batches(epoch, jitter)) > self._steps:
                jitter = jitter / 2 if jitter > 0.01 else 0.0  # a rare draw takes more batches than there are steps
            while missing := self._steps - len(batches):
                batches.sort(key=len)
                kept, largest = batches[:-missing], batches[-missing:]
                batches = kept + [part for batch in largest for part in (batch[::2], batch[1::2]) if len(part)]
            plans = dict(self._plans)  # a new one: readers in other threads keep theirs
            if len(plans) > 1:
                del plans[next(iter(plans))]
            self._plans = {**plans, epoch: batches}
            return batches
        return self._plans[epoch]

    def _batches(self, epoch: int, jitter: float) -> list[Numbers]:
        noise = draws(self.seed, epoch, 0, "jitter").uniform(-jitter, jitter, len(self.target))
        group = self._groups[self.target]
        order = np.lexsort((np.where(group % 2, -1, 1) * (self.source + noise), group))
        edges = self._edges(order)
        return [order[start:end] for start, end in zip(edges, edges[1:], strict=False)]

    @cached_property
    def _groups(self) -> Numbers:
        """For each target length its group."""
        cells = np.bincount(self.target, weights=sum(self._counted))
        groups = np.zeros(len(cells), np.int64)
        group = gathered = 0
        for length, more in enumerate(cells):
            groups[length] = group
            gathered += more
            if gathered >= GROUP * self.batch_tokens:
                group, gathered = group + 1, 0
        return groups

    def _edges(self, order: Numbers) -> list[int]:
        """Where to cut, so that no part is over the limit when padded to its longest."""
        counted = [lengths[order] for lengths in self._counted]
        edges = [0]
        while (start := edges[-1]) < len(order):
            # No more fit, for the longest is at least as long as the first.
            window = self.batch_tokens // max(int(sum(lengths[start] for lengths in counted)), 1)
            longest = sum(np.maximum.accumulate(lengths[start : start + window]) for lengths in counted)
            cells = longest * np.arange(1, window + 1)[: len(order) - start]
            edges.append(start + int(np.searchsorted(cells, self.batch_tokens, side="right")))
        return edges
