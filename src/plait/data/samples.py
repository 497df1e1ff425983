"""Samples: a stream in two parts. A plan says which rows each step has; an objective makes a batch of rows.

                 index -> Plan -> rows of the step -> dealt to ranks, cut into micro-batches -> Objective -> Batch

Noise belongs to a row and an epoch, not to a batch: it is the same on any number of ranks, in any micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.data.batch import Batch
from plait.data.error import DataError
from plait.data.order import shuffled

Numbers = NDArray[np.int64]

FIXED = 2**64 - 1  # the epoch whose noise an evaluation has, each time
_MEASURED = 500  # steps of the first epoch that padding is measured on


class Objective(Protocol):
    """Samples by number, and what is asked of them."""

    @property
    def sizes(self) -> Sequence[Numbers]:
        """Tokens of every sample, for each thing that is padded: source and target, say."""
        ...

    @property
    def whole(self) -> bool:
        """Whether rows must stay in the micro-batch they are in, for what is asked of one depends on the others."""
        ...

    def batch(self, rows: Numbers, epoch: int) -> Batch:
        """Some samples, with the noise of an epoch."""
        ...


class Plan(Protocol):
    """Which samples a step has."""

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every sample was read once."""
        ...

    def rows(self, epoch: int, place: int) -> Numbers:
        """The samples of one step of an epoch; all its steps together have each once."""
        ...

    def in_order(self) -> Iterator[Numbers]:
        """Every sample once, in order, in batches of the same size."""
        ...


@dataclass(frozen=True)
class ByRows:
    """``batch_rows`` samples a step, or one fewer where an epoch does not divide: no step is a small remainder.

    ``n``: samples. Raises DataError where either is under 1.
    """

    n: int
    batch_rows: int
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("n", self.n), ("batch_rows", self.batch_rows)):
            if value < 1:
                raise DataError(f"{name}: it is {value}, and must be 1 or more.")

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every sample was read once."""
        return -(-self.n // self.batch_rows)

    def rows(self, epoch: int, place: int) -> Numbers:
        """The samples of one step of an epoch."""
        start, end = (self.n * k // self.steps_per_epoch for k in (place, place + 1))
        return shuffled(np.arange(start, end), self.n, seed=self.seed, epoch=epoch)

    def in_order(self) -> Iterator[Numbers]:
        """Every sample once."""
        for start in range(0, self.n, self.batch_rows):
            yield np.arange(start, min(start + self.batch_rows, self.n))


@dataclass(frozen=True)
class Samples:
    """A ``Stream`` of an objective by a plan.

    Args:
        micro_batches: into how many parts a rank's rows of a step are cut; of an objective whose rows stay together,
            how many groups all ranks have.
        counts: what reading left out, for ``facts``.

    Raises DataError for fewer than one micro-batch.
    """

    objective: Objective
    plan: Plan
    micro_batches: int = 1
    counts: Mapping[str, int | float] = field(default_factory=dict[str, "int | float"])

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise DataError(f"micro_batches: it is {self.micro_batches}, and must be 1 or more.")

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps until every sample was read once."""
        return self.plan.steps_per_epoch

    def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """The micro-batches of a step, from 0, for one rank; none where there are fewer rows than ranks."""
        epoch, place = divmod(index, self.steps_per_epoch)
        rows = self.plan.rows(epoch, place)
        return [self.objective.batch(part, epoch) for part in self._dealt(rows, self.micro_batches, rank, world)]

    def evaluation(self, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Every sample once, in order, over all ranks: none is there twice to make ranks even."""
        turn = rank  # goes around over all batches, else the first ranks would get the odd rows of each
        for rows in self.plan.in_order():
            for part in self._dealt(rows, 1, turn, world):
                yield self.objective.batch(part, FIXED)
            turn = (turn - (1 if self.objective.whole else len(rows))) % world

    def facts(self) -> dict[str, int | float]:
        """What was read and left out, and the share of cells that are padding, over the first epoch."""
        sizes = self.objective.sizes
        real = cells = 0
        for place in range(min(self.steps_per_epoch, _MEASURED)):
            rows = self.plan.rows(0, place)
            for lengths in sizes:
                real += int(lengths[rows].sum())
                cells += len(rows) * int(lengths[rows].max())
        return {**self.counts, "samples": len(sizes[0]), "padding": 1 - real / cells if cells else 0.0}

    def _dealt(self, rows: Numbers, parts: int, rank: int, world: int) -> list[Numbers]:
        if self.objective.whole:
            return _cut(rows, parts)[rank::world]
        return _cut(rows[rank::world], parts)


def _cut(rows: Numbers, parts: int) -> list[Numbers]:
    """Parts as even as can be, none empty."""
    return [part for part in np.array_split(rows, parts) if len(part)]
