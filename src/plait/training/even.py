"""Even: as many micro-batches in every process, where all must gather weights together or wait for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import torch
import torch.distributed as dist
from torch import Tensor

from plait.data.batch import UNCOUNTED, Batch
from plait.data.stream import Stream
from plait.training.processes import ParallelError


class Even:
    """A stream that has as many micro-batches in every process: those that lack some get rows without a target."""

    def __init__(self, stream: Stream, device: torch.device) -> None:
        self._stream, self._device = stream, device

    @property
    def steps_per_epoch(self) -> int:
        """See ``Stream``."""
        return self._stream.steps_per_epoch

    def facts(self) -> dict[str, int | float]:
        """See ``Stream``."""
        return self._stream.facts()

    def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """See ``Stream``."""
        batches = self._stream.step(index, rank=rank, world=world)
        return [*batches, *self._more(batches, lambda: self._stream.step(index)[0])]

    def evaluation(self, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """See ``Stream``."""
        batches = list(self._stream.evaluation(rank=rank, world=world))
        yield from batches
        yield from self._more(batches, lambda: next(iter(self._stream.evaluation())))

    def _more(self, batches: list[Batch], any: Callable[[], Batch]) -> list[Batch]:
        most = torch.tensor(len(batches), device=self._device)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        lacking = int(most) - len(batches)
        return [_unasked(batches[0] if batches else any())] * lacking


def _unasked(batch: Batch) -> Batch:
    """One row of a batch, of which nothing is asked."""
    row = {f.name: value[:1] for f in fields(batch) if isinstance(value := getattr(batch, f.name), Tensor)}
    targets = row["targets"]
    if targets.is_floating_point():
        raise ParallelError("objective.kind: numbers to regress are all counted; use run.parallel = 'data' for them.")
    return replace(batch, **{**row, "targets": torch.full_like(targets, UNCOUNTED)})
