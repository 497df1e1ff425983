"""Towers: what sequences read is laid end to end, rows of any lengths, and one pass of a program reads them all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.engine.cache import Row
from plait.engine.pages import Pages, Run
from plait.engine.passes import Held, Pass
from plait.engine.program import Program, Register, Space
from plait.engine.rotations import Rotations

CHUNK = 512  # rows of a pass at most; an encoder reads a batch of sources whole


class Executor(Protocol):
    """Runs a program: by kernels, by torch, or by both."""

    def run(self, pass_: Pass, registers: Mapping[Register, Tensor]) -> None:
        """Read the pass and write the registers."""
        ...


@dataclass
class Reading:
    """What one sequence reads in a pass."""

    row: Row
    tokens: np.ndarray  # (n,) int32
    positions: np.ndarray  # (n,) int32
    wanted: np.ndarray  # which of them give logits, ascending
    total: int  # how long the sequence is declared to become, or will be after this call
    types: np.ndarray | None = None  # (n,) int32


class Encoded(NamedTuple):
    """Of each source: its states ``(n, d_model)``, the head's logits where an encoder stands alone, and where it does
    not, the run that holds its keys and values for every layer of the decoder."""

    states: list[Tensor]
    logits: list[Tensor]
    memory: list[Run]


class Towers:
    """Programs with what runs them, the pages of their spaces, and the registers and rotations that passes share.

    ``dtype`` is that of registers, ``cache_dtype`` that of keys and values, which lie in ``pages``. What is read is
    right: a runner checks it.
    """

    def __init__(
        self,
        architecture: Architecture,
        executors: Mapping[str, tuple[Program, Executor]],
        *,
        dtype: torch.dtype,
        cache_dtype: torch.dtype,
        device: torch.device,
        pages: type[Pages],
    ) -> None:
        self._executors, self._dtype, self._device = executors, dtype, device
        self._buffers: dict[Register, Tensor] = {}
        self._rotations = {
            tower.name: Rotations({layer.rope for layer in tower.layers if layer.rope is not None}, tower.d_head, dtype)
            for tower in architecture.towers
        }
        self.pages: dict[Space, Pages] = {}
        for tower in architecture.towers:
            spaces: tuple[Space, ...] = ("pass",)
            if tower.causal:
                spaces = ("self", "memory") if tower.cross else ("self",)
            for space in spaces:
                layers = 1 if space == "pass" else tower.n_layers
                self.pages[space] = pages(layers, tower.n_kv_heads, tower.d_head, cache_dtype, device=device)

    def __contains__(self, tower: object) -> bool:
        return tower in self._executors

    def pools(self, tower: str) -> bool:
        """Whether the tower's head has one line for each sequence."""
        return self._executors[tower][0].pools

    def read(self, readings: Sequence[Reading]) -> Tensor:
        """Logits of what is wanted, ``(w, vocab)``, in passes of at most ``CHUNK`` rows."""
        found: list[Tensor] = []
        pending: list[Reading] = []
        whole = sum(len(reading.tokens) for reading in readings)
        chunk = room = max(whole, 1) if self.pools("decoder") else CHUNK
        with _as_before_on_failure(readings):
            for r in readings:
                at = 0
                while at < len(r.tokens):
                    end = min(len(r.tokens), at + room)
                    if end - at == len(r.tokens):
                        pending.append(r)
                    else:
                        wanted = r.wanted[(r.wanted >= at) & (r.wanted < end)] - at
                        pending.append(Reading(r.row, r.tokens[at:end], r.positions[at:end], wanted, r.total))
                    room -= end - at
                    at = end
                    if room == 0:
                        found.append(self._logits(pending))
                        pending, room = [], chunk
            if pending or not found:
                found.append(self._logits(pending))
        return found[0] if len(found) == 1 else torch.cat(found)

    def states(self, readings: Sequence[Reading]) -> list[Tensor]:
        """The decoder's last hidden states: for each sequence ``(n, d_model)``."""
        unasked = [dataclasses.replace(reading, wanted=reading.wanted[:0]) for reading in readings]
        with _as_before_on_failure(readings):
            states = self._decode(unasked)[self._executors["decoder"][0].states]
        return [t.clone() for t in states.split([len(reading.tokens) for reading in readings])]

    def encode(self, sources: Sequence[np.ndarray], types: Sequence[np.ndarray] | None = None) -> Encoded:
        """Read sources ``(n,)`` int32 in one pass of the encoder."""
        program, _ = self._executors["encoder"]
        scratch = [Run(self.pages["pass"], len(source)) for source in sources]
        memory = [Run(self.pages["memory"], len(source)) for source in sources] if "memory" in self.pages else []
        readings: list[Reading] = []
        orders = [np.arange(len(source), dtype=np.int32) for source in sources]
        for i, (source, run, order) in enumerate(zip(sources, scratch, orders, strict=True)):
            run.extend(order)
            if memory:
                memory[i].extend(order)
            wanted = order[:0] if memory else order
            readings.append(Reading(Row(run), source, order, wanted, len(source), None if types is None else types[i]))
        spaces: dict[Space, Held] = {"pass": _held(scratch, self.pages["pass"])}
        if "memory" in self.pages:
            spaces["memory"] = _held(memory, self.pages["memory"])
        registers = self._run("encoder", readings, orders, spaces)
        lengths = [len(source) for source in sources]
        states = [t.clone() for t in registers[program.states].split(lengths)]
        if "memory" in self.pages:
            return Encoded(states, [], memory)
        logits = registers[program.output].split([1] * len(lengths) if program.pools else lengths)
        return Encoded(states, [t.clone() for t in logits], [])

    def _logits(self, readings: Sequence[Reading]) -> Tensor:
        logits = self._decode(readings)[self._executors["decoder"][0].output]
        if self._device.type != "cpu":
            return logits.clone()
        return torch.from_numpy(logits.numpy().copy())  # torch's own copy would wake its threads

    def _decode(self, readings: Sequence[Reading]) -> Mapping[Register, Tensor]:
        orders: list[np.ndarray] = []
        for reading in readings:
            start = reading.row.own.length
            orders.append(np.arange(start, start + len(reading.tokens), dtype=np.int32))
            reading.row.own.extend(reading.positions)
        spaces: dict[Space, Held] = {"self": _held([r.row.own for r in readings], self.pages["self"])}
        if "memory" in self.pages:
            spaces["memory"] = _held([r.row.memory for r in readings], self.pages["memory"])
        return self._run("decoder", readings, orders, spaces)

    def _run(
        self,
        tower: str,
        readings: Sequence[Reading],
        orders: Sequence[np.ndarray],
        spaces: Mapping[Space, Held],
    ) -> Mapping[Register, Tensor]:
        """Lay the readings end to end, run the program, and give its registers."""
        program, executor = self._executors[tower]
        lengths = [len(r.tokens) for r in readings]
        begins = np.zeros(len(readings) + 1, np.int32)
        begins[1:] = np.cumsum(lengths)
        positions = _joined([r.positions for r in readings])
        sequences = np.repeat(np.arange(len(readings), dtype=np.int32), lengths)
        taken = begins[:-1]  # a pooled line for each sequence, or the rows that are wanted
        if not program.pools:
            taken = _joined([r.wanted + begin for r, begin in zip(readings, begins[:-1], strict=True)])
        if any(r.types is not None for r in readings):
            types = _joined([np.zeros_like(r.tokens) if r.types is None else r.types for r in readings])
        else:
            types = None
        pass_ = Pass(
            tokens=_joined([r.tokens for r in readings]),
            positions=positions,
            orders=_joined(orders),
            sequences=sequences,
            begins=begins,
            taken=taken,
            spaces=spaces,
            turns=self._rotations[tower].turns(positions, np.repeat([r.total for r in readings], lengths)),
            types=types,
        )
        registers = {r: self._buffer(r, len(taken) if r.taken else pass_.rows) for r in program.registers}
        executor.run(pass_, registers)
        return registers

    def _buffer(self, register: Register, rows: int) -> Tensor:
        """The register's first lines, in memory that is kept."""
        buffer = self._buffers.get(register)
        if buffer is None or len(buffer) < rows:
            buffer = torch.empty(max(rows, 1), register.width, dtype=self._dtype, device=self._device)
            self._buffers[register] = buffer
        return buffer[:rows]


@contextmanager
def _as_before_on_failure(readings: Sequence[Reading]) -> Iterator[None]:
    """Where what follows fails, or is interrupted, no row says that it holds more than before."""
    lengths = [reading.row.own.length for reading in readings]
    try:
        yield
    except BaseException:
        for reading, length in zip(readings, lengths, strict=True):
            reading.row.own.truncate(length)
        raise


def _held(runs: Sequence[Run | None], pages: Pages) -> Held:
    there = [run for run in runs if run is not None]
    return Held(pages, tuple(run.table for run in there), np.array([run.length for run in there], np.int32))


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    if len(arrays) == 1:
        return np.ascontiguousarray(arrays[0], np.int32)
    return np.concatenate(arrays).astype(np.int32) if arrays else np.zeros(0, np.int32)
