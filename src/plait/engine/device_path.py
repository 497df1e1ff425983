"""The device path: a program with torch alone on a device; steps of decoding are captured once and replayed.

Why CUDA graphs and not torch.compile: a step of one row a sequence is some hundred kernels of a few microseconds, and
what it waits for is Python, which launches them one by one. A graph launches all at once, and needs no compiler, no
minutes of compiling, and no guess at which shapes may change: the kernels are those that ran before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.engine import program as p
from plait.engine.batched import attend, experts, store
from plait.engine.interpret import Dense, execute
from plait.engine.laid import Laid, Laying, arrays, end_to_end, power, spread, widened
from plait.engine.passes import Pass
from plait.engine.program import Program, Register

KEPT = 32  # shapes of steps; the one that was not asked for the longest goes first
WARM = 3  # runs before a capture

Work = Callable[[], None]


class DevicePath:
    """Runs a program with torch on a device. ``capture`` makes of a piece of work, which reads and writes memory that
    stays where it is, what does it again."""

    def __init__(
        self,
        program: Program,
        weights: Dense,
        device: torch.device,
        dtype: torch.dtype,
        capture: Callable[[Work], Work],
    ) -> None:
        self._program, self._weights, self._laying = program, weights, Laying(program)
        self._device, self._dtype, self._capture = device, dtype, capture
        self._steps: OrderedDict[Hashable, _Step] = OrderedDict()
        self._storage: Hashable = None
        self._registers: dict[int, Mapping[Register, Tensor]] = {}  # of steps, by their rows

    def run(self, pass_: Pass, registers: Mapping[Register, Tensor]) -> None:
        """Read the pass and write the registers; of a step only the program's output."""
        n, program = pass_.rows, self._program
        if n and program.causal and not program.pools and pass_.n_sequences == len(pass_.taken) == n:
            output = self._step(widened(pass_, power(n)))
            registers[program.output].copy_(output[:n])
        else:
            laid = self._laying.lay(pass_)
            flat = torch.from_numpy(end_to_end(arrays(laid)))
            self._do(spread(laid, flat.to(self._device)), registers, captured=False)

    def _step(self, pass_: Pass) -> Tensor:
        """One row a sequence, in memory that stays where it is: the output."""
        storage = tuple(held.pages.version for held in pass_.spaces.values())
        if storage != self._storage:  # what was captured has the addresses of pages that were
            self._steps.clear()
            self._storage = storage
        laid = self._laying.lay(pass_, whole=True)
        brought = arrays(laid)
        flat, shapes = torch.from_numpy(end_to_end(brought)), tuple(array.shape for array in brought)
        step = self._steps.get(shapes)
        if step is None:
            step = self._steps[shapes] = self._new_step(laid, flat, pass_.rows)
            if len(self._steps) > KEPT:
                self._steps.popitem(last=False)
        else:
            self._steps.move_to_end(shapes)
            step.inputs.copy_(flat)
        step.work()
        return step.registers[self._program.output]

    def _new_step(self, laid: Laid, flat: Tensor, rows: int) -> _Step:
        if rows not in self._registers:
            self._registers[rows] = {
                r: torch.empty(rows, r.width, dtype=self._dtype, device=self._device) for r in self._program.registers
            }
        registers, inputs = self._registers[rows], flat.to(self._device, copy=True)
        still = spread(laid, inputs)
        return _Step(inputs, registers, self._capture(lambda: self._do(still.anew(), registers, captured=True)))

    def _do(self, laid: Laid, registers: Mapping[Register, Tensor], *, captured: bool) -> None:
        for operation in self._program.operations:
            match operation:
                case p.Store():
                    store(operation, laid, registers)
                case p.Attend():
                    attend(operation, laid, registers, self._weights)
                case p.Experts() if captured:
                    experts(operation, registers, self._weights)
                case _:
                    execute(operation, laid, registers, self._weights)


@dataclass(frozen=True)
class _Step:
    """One shape of a step: what it reads, what it writes, and the work between."""

    inputs: Tensor  # bytes, as ``end_to_end`` lays them
    registers: Mapping[Register, Tensor]
    work: Work


class Graphs:
    """Work on a CUDA device, captured as graphs. They share one pool of memory, which is then as large as the largest
    of them needs: none leaves anything there that another run reads."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """The work as a graph. It is run some times before, on another stream, as torch's documentation asks: what is
        set up at a first run must not be captured."""
        with torch.cuda.device(self._device):
            here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
            aside.wait_stream(here)
            with torch.cuda.stream(aside):
                for _ in range(WARM):
                    work()
            here.wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                work()
        return graph.replay
