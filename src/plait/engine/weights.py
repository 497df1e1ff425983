"""The engine's weights: every matrix packed once, in the format that was asked for or in the one it is stored in."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from plait.engine import program as p
from plait.engine.program import Program


def matrices(programs: Iterable[Program]) -> list[tuple[str, ...]]:
    """Every matrix that products or look-ups read, stacked as they read it, each once."""
    found: dict[tuple[str, ...], None] = {}
    for program in programs:
        for operation in program.operations:
            if isinstance(operation, p.Linear):
                found[operation.weight] = None
            elif isinstance(operation, p.Embed):
                found[operation.table,] = None
    return list(found)


class DenseWeights:
    """Parameters as plain tensors of one type, read when first asked for: what the torch path computes with."""

    def __init__(self, read: Callable[[str, torch.dtype], Tensor], dtype: torch.dtype) -> None:
        self._read, self.dtype = read, dtype
        self._dense: dict[str, Tensor] = {}

    def dense(self, name: str) -> Tensor:
        """The parameter in the type that is computed in."""
        if name not in self._dense:
            self._dense[name] = self._read(name, self.dtype)
        return self._dense[name]
