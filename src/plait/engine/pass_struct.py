"""The struct of a pass: made once for a program, its addresses filled in again for each pass."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plait.engine import structs
from plait.engine.layout import Layout
from plait.engine.pages import Pages
from plait.engine.passes import Held, Pass
from plait.engine.program import Program, Register, Space
from plait.engine.structs import SPACES, pointer


class PassStruct:
    """The struct of a pass, filled again for each; what it points to is held until the next."""

    def __init__(self, program: Program, layout: Layout) -> None:
        self._layout, self._registers = layout, program.registers
        self._record = structs.Pass()
        self._addresses = (pointer * max(1, len(self._registers)))()
        self._turns = (structs.Turns * max(1, len(layout.ropes)))()
        self._spaces: dict[Space, _SpaceStruct] = {}
        self._held: object = None
        record: Any = self._record
        record.registers, record.turns = ctypes.addressof(self._addresses), ctypes.addressof(self._turns)

    def fill(self, pass_: Pass, registers: Mapping[Register, Tensor]) -> ctypes.Structure:
        """The struct for this pass."""
        record: Any = self._record
        record.rows, record.n_sequences, record.n_taken = len(pass_.tokens), len(pass_.begins) - 1, len(pass_.taken)
        record.tokens, record.positions, record.orders = _at(pass_.tokens), _at(pass_.positions), _at(pass_.orders)
        record.sequences, record.begins, record.taken = _at(pass_.sequences), _at(pass_.begins), _at(pass_.taken)
        record.types = None if pass_.types is None else _at(pass_.types)
        for i, register in enumerate(self._registers):
            self._addresses[i] = registers[register].data_ptr()
        for i, rope in enumerate(self._layout.ropes):
            turns, into = pass_.turns[rope], self._turns[i]
            into.table, into.lines, into.width = _at(turns.table), _at(turns.lines), turns.table.shape[1]
        for number, space in enumerate(SPACES):
            held = pass_.spaces.get(space)
            if held is not None:
                if space not in self._spaces:
                    self._spaces[space] = _SpaceStruct(record.spaces[number])
                self._spaces[space].fill(held)
        for table in self._layout.sinusoids:
            table.cover(pass_.positions)
        self._held = (pass_, registers)
        return record


class _SpaceStruct:
    """The struct of a space: addresses of its layers while its storage stays, of tables while the sequences do."""

    def __init__(self, struct: Any) -> None:
        self._struct = struct
        self._pages: Pages | None = None
        self._version = -1
        self._numbers: tuple[int, ...] = ()
        self._arrays: object = None
        self._held: object = None

    def fill(self, held: Held) -> None:
        struct, pages = self._struct, held.pages
        if pages is not self._pages or pages.version != self._version:
            keys, values = (
                (pointer * pages.n_layers)(*(t.data_ptr() for t in ts)) for ts in (pages.keys, pages.values)
            )
            struct.keys, struct.values = ctypes.addressof(keys), ctypes.addressof(values)
            struct.positions, struct.bfloat = _at(pages.positions), pages.dtype == torch.bfloat16
            self._pages, self._version, self._arrays = pages, pages.version, (keys, values, pages.positions)
        numbers = tuple(map(id, held.tables))
        if numbers != self._numbers:
            tables = (pointer * max(1, len(numbers)))(*map(_at, held.tables))
            struct.tables = ctypes.addressof(tables)
            self._numbers, self._tables = numbers, (held.tables, tables)
        struct.lengths = _at(held.lengths)
        self._held = held


def _at(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
