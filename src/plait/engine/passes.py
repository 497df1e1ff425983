"""A pass: what one run of a program reads besides weights. Rows are flat, and those of a sequence stand together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from plait.architecture import Rope
from plait.engine.pages import Pages
from plait.engine.program import Space


@dataclass(frozen=True)
class Held:
    """A space as a pass sees it: each sequence's page numbers, and how many tokens they hold with this pass's own."""

    pages: Pages
    tables: tuple[np.ndarray, ...]  # int32, one a sequence
    lengths: np.ndarray  # (sequences,) int32


@dataclass(frozen=True)
class Turns:
    """Rotations of one rope: lines of cosines, then sines, ``(lines, r)`` float32, and each row's line."""

    table: np.ndarray
    lines: np.ndarray  # (rows,) int32


@dataclass(frozen=True)
class Pass:
    """``rows`` tokens; all arrays int32. In the memory program orders and sequences are those of the source."""

    tokens: np.ndarray  # (rows,)
    positions: np.ndarray  # (rows,), what tables and rotations go by
    orders: np.ndarray  # (rows,), the place in its sequence, what causality and windows go by
    sequences: np.ndarray  # (rows,)
    begins: np.ndarray  # (sequences + 1,), the first row of each
    taken: np.ndarray  # (wanted,), the rows whose logits are wanted
    spaces: Mapping[Space, Held]
    turns: Mapping[Rope, Turns] = field(default_factory=dict)
    types: np.ndarray | None = None  # (rows,)

    def turns_of(self, rope: Rope) -> Tensor:
        """Each row's cosines, then sines ``(rows, r)``."""
        turns = self.turns[rope]
        return torch.from_numpy(turns.table)[torch.from_numpy(turns.lines.astype(np.int64))]

    @property
    def rows(self) -> int:
        """How many tokens are read."""
        return len(self.tokens)

    @property
    def n_sequences(self) -> int:
        """Of how many sequences."""
        return len(self.begins) - 1
