"""Plain: a pass computed in the type of the parameters, and what the loop asks of any other precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from torch import Tensor, nn


class Precision(Protocol):
    """What a pass computes in, and what the optimizer moves."""

    @property
    def scale(self) -> float:
        """The loss is multiplied by it, and gradients divided."""
        ...

    def masters(self) -> dict[str, Tensor]:
        """What the optimizer moves, by the parameters' names; the same tensors at every call."""
        ...

    def computing(self) -> AbstractContextManager[Any]:
        """The context of a pass and its loss."""
        ...

    def collect(self) -> None:
        """The gradients of the parameters, summed over ranks, become those of the masters."""
        ...

    def spread(self) -> None:
        """The masters' values become the parameters'."""
        ...

    def adapt(self, finite: bool) -> bool:
        """Told after each backward pass whether gradients are finite: whether it has taken another scale, and the step
        is to be left out."""
        ...

    def state(self) -> Any:
        """What it counts, as plain data."""
        ...

    def restore(self, state: Any) -> None:
        """Count on from there."""
        ...


class Plain:
    """The type of the parameters: nothing to scale, and the parameters are the masters."""

    scale = 1.0

    def __init__(self, model: nn.Module) -> None:
        self._parameters = dict(model.named_parameters())

    def masters(self) -> dict[str, Tensor]:
        """The parameters."""
        return dict(self._parameters)

    def computing(self) -> AbstractContextManager[Any]:
        """Nothing."""
        return nullcontext()

    def collect(self) -> None:
        """Nothing."""

    def spread(self) -> None:
        """Nothing."""

    def adapt(self, finite: bool) -> bool:
        """No."""
        return False

    def state(self) -> Any:
        """Nothing."""

    def restore(self, state: Any) -> None:
        """Nothing."""
