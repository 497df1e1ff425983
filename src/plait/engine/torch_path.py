"""The torch path: a program, one operation after the other."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from plait.engine.interpret import Dense, execute
from plait.engine.passes import Pass
from plait.engine.program import Program, Register


class TorchPath:
    """Runs a program with torch alone."""

    def __init__(self, program: Program, weights: Dense) -> None:
        self._program, self._weights = program, weights

    def run(self, pass_: Pass, registers: Mapping[Register, Tensor]) -> None:
        """Do every operation in order."""
        for operation in self._program.operations:
            execute(operation, pass_, registers, self._weights)
