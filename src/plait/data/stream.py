"""Stream: what training asks of data. Any step is reached at once: it is a function of the seed and its number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from plait.data.batch import Batch


class Stream(Protocol):
    """Batches of one objective over one set of samples."""

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps until every sample was read once."""
        ...

    def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """The micro-batches of optimizer step ``index``, from 0, for one process of ``world``.

        A pure function of the stream's seed and these numbers. All ranks together have the rows of ``world=1``; a rank
        without rows gets an empty list.
        """
        ...

    def evaluation(self, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Every sample once, in order, without noise that changes from one call to the next."""
        ...

    def facts(self) -> dict[str, int | float]:
        """What was read and what was left out, by name: documents, tokens, blank, over_long, bad, padding."""
        ...
