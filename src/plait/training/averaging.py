"""Averaging: weights that are the mean of those the run went through, which are often better than the last.

Both are kept in float32, or in float64 where the weights are, whatever the model computes in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from plait.training.settings import Run

Named = Mapping[str, Tensor]


class Average(Protocol):
    """What is kept beside the weights; ``add`` is called after every optimizer step, with the steps there were."""

    def add(self, parameters: Named, steps: int) -> None:
        """Take the weights into account."""
        ...

    def mean(self) -> dict[str, Tensor]:
        """The averaged weights by name; empty before the first."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Everything to save."""
        ...

    def restore(self, state: Named) -> None:
        """Go on from what was saved."""
        ...


class Moving:
    """An exponential moving average: ``mean <- decay * mean + (1 - decay) * weights``, after every step.

    It begins as the first weights, and with a shorter memory, ``(1 + n) / (10 + n)`` after n steps where that is less
    than ``decay``, so that they are forgotten soon.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self._mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, parameters: Named, steps: int) -> None:
        """Take the weights into account."""
        if not self._mean:
            self._mean = {name: _wide(value) for name, value in parameters.items()}
            return
        keep = min(self.decay, (1 + steps) / (10 + steps))
        for name, value in parameters.items():
            mean = self._mean[name]
            mean.lerp_(value.detach().to(mean.dtype), 1 - keep)

    def mean(self) -> dict[str, Tensor]:
        """The averaged weights by name."""
        return dict(self._mean)

    def state(self) -> dict[str, Tensor]:
        """Everything to save."""
        return dict(self._mean)

    def restore(self, state: Named) -> None:
        """Go on from what was saved."""
        self._mean = {name: value.clone() for name, value in state.items()}


class Last:
    """The mean of the last ``count`` snapshots, one every ``every`` steps (Vaswani et al. 2017, section 6.1); the last
    is of the step ``total``, where it is known."""

    def __init__(self, count: int, every: int, total: int | None = None) -> None:
        self.count, self.every, self.first = count, every, (total or 0) % every
        self._snapshots: dict[int, dict[str, Tensor]] = {}  # by the number of steps there were

    @torch.no_grad()
    def add(self, parameters: Named, steps: int) -> None:
        """Take the weights into account, where it is time for a snapshot."""
        if steps % self.every == self.first:
            self._snapshots[steps] = {name: _wide(value) for name, value in parameters.items()}
            for old in sorted(self._snapshots)[: -self.count]:
                del self._snapshots[old]

    @torch.no_grad()
    def mean(self) -> dict[str, Tensor]:
        """The averaged weights by name."""
        if not self._snapshots:
            return {}
        first, *others = (self._snapshots[step] for step in sorted(self._snapshots))
        total = {name: value.clone() for name, value in first.items()}
        for snapshot in others:
            for name, value in snapshot.items():
                total[name] += value
        return {name: value / len(self._snapshots) for name, value in total.items()}

    def state(self) -> dict[str, Tensor]:
        """Everything to save, as ``steps:name``."""
        return {f"{steps}:{name}": value for steps, named in self._snapshots.items() for name, value in named.items()}

    def restore(self, state: Named) -> None:
        """Go on from what was saved."""
        self._snapshots = {}
        for key, value in state.items():
            steps, _, name = key.partition(":")
            self._snapshots.setdefault(int(steps), {})[name] = value.clone()


class Without:
    """No average: the weights are what they are."""

    def add(self, parameters: Named, steps: int) -> None:
        """Nothing."""

    def mean(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def restore(self, state: Named) -> None:
        """Nothing."""


def average_of(run: Run, total: int | None = None) -> Average:
    """The average that a recipe's [run] asks for, of a run of ``total`` steps."""
    if run.average == "ema":
        return Moving(run.ema_decay)
    return Last(run.average_last, run.average_every, total) if run.average == "last" else Without()


@contextmanager
@torch.no_grad()
def averaged(parameters: Named, average: Average) -> Iterator[None]:
    """Inside the block the parameters hold the average, if there is one; afterwards, bit for bit, what they held."""
    mean = average.mean()
    held = {name: parameters[name].detach().clone() for name in mean}
    for name, value in mean.items():
        parameters[name].copy_(value)
    try:
        yield
    finally:
        for name, value in held.items():
            parameters[name].copy_(value)


def _wide(value: Tensor) -> Tensor:
    return value.detach().to(torch.promote_types(value.dtype, torch.float32), copy=True)
