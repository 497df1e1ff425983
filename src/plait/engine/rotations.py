"""Rotations of a pass: a line of cosines and sines for every row, from tables that are made once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from plait.architecture import Rope
from plait.engine.passes import Turns
from plait.model.position import Rotation


class Rotations:
    """Tables for the ropes of one tower, in ``dtype``. They grow with the positions that are asked for; where a scaling
    goes by length, each pass makes its own."""

    def __init__(self, ropes: Iterable[Rope], d_head: int, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._rotations = {rope: Rotation(rope, d_head) for rope in ropes}
        self._tables: dict[Rope, np.ndarray] = {}

    def turns(self, positions: np.ndarray, totals: np.ndarray) -> dict[Rope, Turns]:
        """``positions`` and ``totals`` ``(rows,)``: how long each row's sequence is, or is declared to become."""
        found: dict[Rope, Turns] = {}
        highest = int(positions.max(initial=0))
        for rope, rotation in self._rotations.items():
            if rope.scaling is not None and rope.scaling.by_length:
                lines = np.arange(len(positions), dtype=np.int32)
                found[rope] = Turns(self._lines(rotation, positions, totals), lines)
                continue
            table = self._tables.get(rope)
            if table is None or highest >= len(table):
                count = max(256, 1 << highest.bit_length())
                table = self._tables[rope] = self._lines(rotation, np.arange(count), np.zeros(count))
            found[rope] = Turns(table, positions)
        return found

    def _lines(self, rotation: Rotation, positions: np.ndarray, totals: np.ndarray) -> np.ndarray:
        asked = torch.from_numpy(positions.astype(np.int64)).unsqueeze(1)
        cos, sin = rotation.table(asked, torch.from_numpy(totals.astype(np.int64)), self.dtype)  # rows 1 1 r/2
        return torch.cat((cos, sin), dim=-1).reshape(len(positions), -1).contiguous().numpy()
