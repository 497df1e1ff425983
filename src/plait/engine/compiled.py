"""Compiled: a program that the kernels run from end to end, in one call; what they lack, torch does in between.

What can be known beforehand is laid out once (layout.py, waits.py); a pass fills in its own addresses (pass_struct.py).
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Mapping, Sequence

from torch import Tensor

from plait.engine import kernels, structs
from plait.engine.interpret import execute
from plait.engine.layout import Layout, Weights
from plait.engine.pass_struct import PassStruct
from plait.engine.passes import Pass
from plait.engine.program import Attend, Operation, Program, Register
from plait.engine.waits import kept_registers, waits


def implementations(program: Program) -> list[tuple[Operation, str]]:
    """Every operation with what does it: ``kernel avx2``, say, or ``torch``."""
    name = f"kernel {kernels.backend()}" if kernels.available() else "torch"
    return [(operation, name if _has_kernel(operation) else "torch") for operation in program.operations]


def _has_kernel(operation: Operation) -> bool:
    if isinstance(operation, Attend) and operation.alibi is not None and operation.alibi.rounded:
        return False  # kernels go by the distance, rounded penalties by the place
    return type(operation) in structs.OPERATIONS


class Compiled:
    """A program for a team of threads."""

    def __init__(self, program: Program, weights: Weights, team: kernels.Team) -> None:
        self._weights = weights
        self._registers = program.registers
        layout = Layout(program, weights)
        self._pass = PassStruct(program, layout)
        self._segments: list[_Segment | Operation] = []
        for is_kernel, neighbours in itertools.groupby(program.operations, _has_kernel):
            operations = list(neighbours)
            if is_kernel:
                kept = kept_registers(program, operations)
                self._segments.append(_Segment(operations, self._registers, kept, layout, team))
            else:
                self._segments += operations

    def run(self, pass_: Pass, registers: Mapping[Register, Tensor]) -> None:
        """Read the pass and write the registers, which are float32."""
        record = self._pass.fill(pass_, registers)
        for segment in self._segments:
            if isinstance(segment, _Segment):
                segment.run(record)
            else:
                execute(segment, pass_, registers, self._weights)


class _Segment:
    """Operations that run in one call, and the executor in the library that runs them."""

    def __init__(
        self,
        operations: Sequence[Operation],
        registers: Sequence[Register],
        kept: Sequence[Register],
        layout: Layout,
        team: kernels.Team,
    ) -> None:
        self._team, library = team, team.library
        fields = [layout.struct(operation) for operation in operations]
        few, many = waits(operations, kept), waits(operations, ())
        array = (structs.Operation * len(operations))(
            *(
                (structs.KINDS[type(operation)], ctypes.addressof(field), few[i], many[i])
                for i, (operation, field) in enumerate(zip(operations, fields, strict=True))
            )
        )
        starts, total = {}, 0
        for register in kept:
            starts[register], total = total, total + register.width
        records = (structs.Register * len(registers))(*((r.width, r.taken, starts.get(r, -1)) for r in registers))
        program = structs.Program(ctypes.addressof(array), len(array), ctypes.addressof(records), len(records), total)
        self._memory = (fields, array, records, program)  # what the executor points to
        self._executor = library.plait_executor(team.handle, ctypes.byref(program))
        self._run = library.plait_executor_run
        weakref.finalize(self, _end, library, self._executor, team, self._memory).atexit = False

    def run(self, record: ctypes.Structure) -> None:
        """One pass."""
        if self._run(self._executor, ctypes.byref(record)):
            raise MemoryError("The kernels found no memory for a pass of so many rows.")


def _end(library: ctypes.CDLL, executor: int, *_held: object) -> None:
    library.plait_executor_end(executor)
