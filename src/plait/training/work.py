"""Work: everything of a run that changes from step to step, and the way to a State and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace

import torch
from torch import Tensor, nn

from plait.checkpoint.notice import notice
from plait.training.averaging import Average, average_of, averaged
from plait.training.optimizers import Optimizer
from plait.training.plain import Precision
from plait.training.progress import Counts
from plait.training.settings import Recipe
from plait.training.states import State, fill, tensors_of


class Work:
    """A model with its optimizer, its average, and counts of ``world`` processes; ``total`` steps are to be made.

    ``masters`` is what the optimizer moves, by the parameters' names.
    """

    def __init__(
        self, model: nn.Module, recipe: Recipe, precision: Precision, world: int, total: int | None = None
    ) -> None:
        self.model, self.precision = model, precision
        self.masters = precision.masters()
        self.optimizer = Optimizer(self.masters.items(), recipe.optimizer)
        self.average = average_of(recipe.run, total)
        self.counts = Counts(world=world, threads=torch.get_num_threads())
        self._run = recipe.run

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What makes up the model: parameters and buffers, masters instead of parameters where there are some."""
        return {**tensors_of(self.model), **self.masters}

    def state(self, step: int) -> State:
        """All of it, after ``step`` optimizer steps; the tensors themselves, not copies."""
        self.counts.precision = self.precision.state()
        return State(
            step=step,
            model=self.tensors,
            optimizer=self.optimizer.state(),
            averages=self.average.state(),
            counts=asdict(self.counts),
        )

    def restore(self, state: State) -> None:
        """Be as it was. Raises ``ValueError`` where it does not fit; says aloud what will round otherwise."""
        fill(self.tensors, state.model)
        self.precision.spread()
        self.optimizer.restore(state.optimizer)
        self.average.restore(self._here(state.averages))
        known = {f.name for f in fields(Counts)}
        before = Counts(**{name: value for name, value in state.counts.items() if name in known})
        for name in ("world", "threads"):
            was, now = getattr(before, name), getattr(self.counts, name)
            if was != now:
                notice(f"{name}: {was} before and {now} now; the run goes on, but rounds otherwise than it would have.")
        self.counts = replace(before, world=self.counts.world, threads=self.counts.threads)
        self.precision.restore(before.precision)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the block the model has the average's weights, if there are any."""
        try:
            with averaged(self.masters, self.average):
                self.precision.spread()
                yield
        finally:
            self.precision.spread()

    @torch.no_grad()
    def settle(self, best: State | None = None) -> None:
        """Leave the average's weights in the model, or those of ``best`` and its average."""
        average: Average = self.average
        if best is not None:
            fill(self.tensors, best.model)
            average = average_of(self._run)
            average.restore(self._here(best.averages))
        for name, value in average.mean().items():
            self.masters[name].copy_(value)
        self.precision.spread()

    def _here(self, saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Saved tensors on the device of the weights."""
        device = next(iter(self.masters.values())).device
        return {name: value if value.device == device else value.to(device) for name, value in saved.items()}
