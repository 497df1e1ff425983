"""Compiled: a program as arrays of C structs, which the kernels run from end to end; what they lack, torch does.

The structs are those of csrc/step.h. What can be known beforehand is laid out once; a pass fills in its own addresses.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from plait.architecture import RelativeBias, Sinusoid
from plait.engine import kernels
from plait.engine import program as p
from plait.engine.interpret import Dense, execute
from plait.engine.packed import Packed
from plait.engine.pages import Pages
from plait.engine.passes import Held, Pass
from plait.engine.program import Operation, Program, Register, Space, View
from plait.model.position import alibi_slopes, relative_buckets, sinusoids

SPACES: tuple[Space, ...] = ("self", "memory", "pass")

# Structs of csrc/step.h

_integer, _number, _pointer = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


def _struct(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """Fields by type: ``("a b", type)``."""
    flat = [(field, kind) for fields_, kind in fields for field in fields_.split()]
    return type(name, (ctypes.Structure,), {"_fields_": flat})


_View = _struct("View", ("reg start width", _integer))
_STRUCTS: dict[type[Operation], type[ctypes.Structure]] = {  # in the order of csrc/step.h's Kind
    p.Embed: _struct(
        "Embed", ("target", _View), ("table positions types", _pointer), ("offset", _integer), ("scale", _number)
    ),
    p.Norm: _struct(
        "Norm",
        ("target source", _View),
        ("width lines centred", _integer),
        ("weight bias", _pointer),
        ("eps", _number),
    ),
    p.Linear: _struct(
        "Linear",
        ("target source", _View),
        ("matrix bias", _pointer),
        ("activation add", _integer),
        ("skip scale", _number),
    ),
    p.Clamp: _struct("Clamp", ("target", _View), ("limit", _number)),
    p.Rotate: _struct("Rotate", ("target", _View), ("d_head turns interleaved", _integer)),
    p.Store: _struct("Store", ("keys values", _View), ("space layer d_head", _integer)),
    p.Attend: _struct(
        "Attend",
        ("target queries", _View),
        ("space layer heads kv_heads d_head causal window", _integer),
        ("slopes relative", _pointer),
        ("reach", _integer),
        ("scale softcap", _number),
    ),
    p.Activate: _struct("Activate", ("target", _View), ("activation", _integer)),
    p.Gate: _struct("Gate", ("target up", _View), ("activation", _integer)),
    p.Add: _struct("Add", ("target source", _View), ("skip scale", _number)),
    p.Take: _struct("Take", ("target source", _View)),
    p.Cap: _struct("Cap", ("target", _View), ("scale softcap", _number)),
}
_KINDS = {kind: number for number, kind in enumerate(_STRUCTS)}
_Operation = _struct("Operation", ("kind", _integer), ("fields", _pointer), ("wait_few wait_many", _integer))
_Held = _struct("Held", ("keys values positions tables lengths", _pointer), ("bfloat", _integer))
_Turns = _struct("Turns", ("table lines", _pointer), ("width", _integer))
_Pass = _struct(
    "Pass",
    ("rows n_sequences n_taken", _integer),
    ("tokens positions orders sequences begins taken types registers turns", _pointer),
    ("spaces", _Held * 3),
)
_Register = _struct("Register", ("width taken kept", _integer))
_Program = _struct(
    "Program",
    ("operations", _pointer),
    ("n_operations", _integer),
    ("registers", _pointer),
    ("n_registers kept_width", _integer),
)


class Weights(Dense, Protocol):
    """Parameters as the kernels read them: matrices packed, the rest ``dense``, float32."""

    def matrix(self, names: tuple[str, ...]) -> Packed:
        """Matrices on top of each other."""
        ...


def implementations(program: Program) -> list[tuple[Operation, str]]:
    """Every operation with what does it: ``kernel avx2``, say, or ``torch``."""
    name = f"kernel {kernels.backend()}" if kernels.available() else "torch"
    return [(operation, name if type(operation) in _STRUCTS else "torch") for operation in program.operations]


class Compiled:
    """A program for a team of threads."""

    def __init__(self, program: Program, weights: Weights, team: kernels.Team) -> None:
        self._weights = weights
        self._registers = program.registers
        layout = _Layout(program, weights)
        self._pass = _PassRecord(program, layout)
        self._segments: list[_Segment | Operation] = []
        for is_kernel, operations in _runs(program.operations):
            if is_kernel:
                kept = _kept(program, operations)
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


def _runs(operations: Sequence[Operation]) -> Iterator[tuple[bool, list[Operation]]]:
    """Neighbours that have kernels, and neighbours that have none."""
    run: list[Operation] = []
    for operation in operations:
        if run and (type(operation) in _STRUCTS) != (type(run[0]) in _STRUCTS):
            yield type(run[0]) in _STRUCTS, run
            run = []
        run.append(operation)
    if run:
        yield type(run[0]) in _STRUCTS, run


class _Segment:
    """Operations that run in one call, and the executor in the library that runs them."""

    def __init__(
        self,
        operations: Sequence[Operation],
        registers: Sequence[Register],
        kept: Sequence[Register],
        layout: _Layout,
        team: kernels.Team,
    ) -> None:
        self._team, library = team, _bound(team.library)
        fields = [layout.struct(operation) for operation in operations]
        few, many = waits(operations, kept), waits(operations, ())
        array = (_Operation * len(operations))(
            *(
                (_KINDS[type(operation)], ctypes.addressof(field), few[i], many[i])
                for i, (operation, field) in enumerate(zip(operations, fields, strict=True))
            )
        )
        starts, total = {}, 0
        for register in kept:
            starts[register], total = total, total + register.width
        records = (_Register * len(registers))(*((r.width, r.taken, starts.get(r, -1)) for r in registers))
        program = _Program(ctypes.addressof(array), len(array), ctypes.addressof(records), len(records), total)
        self._memory = (fields, array, records, program)  # what the executor points to
        self._executor = library.plait_executor(team.handle, ctypes.byref(program))
        self._run = library.plait_executor_run
        weakref.finalize(self, _end, library, self._executor, team, self._memory)

    def run(self, record: ctypes.Structure) -> None:
        """One pass."""
        if self._run(self._executor, ctypes.byref(record)):
            raise MemoryError("The kernels found no memory for a pass of so many rows.")


def _end(library: ctypes.CDLL, executor: int, *_held: object) -> None:
    library.plait_executor_end(executor)


def sizes(library: ctypes.CDLL) -> tuple[list[int], list[int]]:
    """Of all structs, here and in the library."""
    mine = [ctypes.sizeof(struct) for struct in (*_STRUCTS.values(), _Pass, _Program)]
    theirs = (_integer * len(mine))()
    library.plait_step_sizes(theirs)
    return mine, list(theirs)


def _bound(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, result, *arguments in (
        ("plait_executor", _pointer, _pointer, _pointer),
        ("plait_executor_run", _integer, _pointer, _pointer),
        ("plait_executor_end", None, _pointer),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


# What is known beforehand


class _Layout:
    """Structs of operations, and all that they point to."""

    def __init__(self, program: Program, weights: Weights) -> None:
        self._weights = weights
        self._numbers = {register: number for number, register in enumerate(program.registers)}
        self.ropes = list(dict.fromkeys(o.rope for o in program.operations if isinstance(o, p.Rotate)))
        self.sinusoids: list[_Sinusoids] = []
        self._held: dict[object, Any] = {}  # what structs point to

    def struct(self, operation: Operation) -> ctypes.Structure:
        """Its struct, filled."""
        struct = _STRUCTS[type(operation)]
        values = {name: getattr(operation, name, None) for name, _ in struct._fields_}  # pyright: ignore
        values |= getattr(self, f"_{type(operation).__name__.lower()}", lambda _: {})(operation)
        if "activation" in values:
            values["activation"] = kernels.ACTIVATIONS.index(values["activation"] or "none")
        if "space" in values:
            values["space"] = SPACES.index(values["space"])
        filled = struct(
            **{name: self._view(v) if isinstance(v, View) else v for name, v in values.items() if v is not None}
        )
        if isinstance(operation, p.Embed) and operation.sinusoid is not None:
            self.sinusoids.append(_Sinusoids(operation.sinusoid, operation.target.width, operation.offset, filled))
        return filled

    def _view(self, view: View) -> ctypes.Structure:
        return _View(self._numbers[view.register], view.start, view.width)

    def _tensor(self, key: object, make: Any) -> int:
        """The address of a tensor that is made once and kept."""
        if key not in self._held:
            self._held[key] = make().float().contiguous()
        return self._held[key].data_ptr()

    def _vector(self, name: str | None, plus: float = 0.0) -> int | None:
        if name is None:
            return None
        return self._tensor((name, plus), lambda: self._weights.dense(name).flatten() + plus)

    def _matrix(self, names: tuple[str, ...]) -> int:
        if names not in self._held:
            packed = self._weights.matrix(names)
            self._held[names] = (packed, kernels.matrix(packed))
        return ctypes.addressof(self._held[names][1])

    def _table(self, name: str | None) -> int | None:
        return None if name is None else self._tensor((name, "table"), lambda: self._weights.dense(name))

    def _embed(self, o: p.Embed) -> dict[str, Any]:
        return {
            "table": self._matrix((o.table,)),
            "positions": self._table(o.positions),
            "types": self._table(o.types),
        }

    def _norm(self, o: p.Norm) -> dict[str, Any]:
        names = [name for name in (o.weight, o.bias) if name is not None]
        lines = self._weights.dense(names[0]).numel() // o.width if names else 1
        return {"weight": self._vector(o.weight, float(o.offset)), "bias": self._vector(o.bias), "lines": lines}

    def _linear(self, o: p.Linear) -> dict[str, Any]:
        return {"matrix": self._matrix(o.weight), "bias": self._biases(o.bias, o)}

    def _biases(self, names: tuple[str | None, ...], o: p.Linear) -> int | None:
        if all(name is None for name in names):
            return None

        def stacked() -> Tensor:
            parts = [None if name is None else self._weights.dense(name) for name in names]
            rest = o.target.width - sum(part.numel() for part in parts if part is not None)
            return torch.cat([torch.zeros(rest) if part is None else part.flatten() for part in parts])

        return self._tensor((names, "bias"), stacked)

    def _rotate(self, o: p.Rotate) -> dict[str, Any]:
        return {"turns": self.ropes.index(o.rope), "interleaved": o.rope.interleaved}

    def _store(self, o: p.Store) -> dict[str, Any]:
        return {"keys": o.target}

    def _attend(self, o: p.Attend) -> dict[str, Any]:
        values: dict[str, Any] = {"heads": o.n_heads, "kv_heads": o.n_kv_heads, "relative": None}
        if o.alibi:
            values["slopes"] = self._tensor(("slopes", o.n_heads), lambda: torch.tensor(alibi_slopes(o.n_heads)))
        if o.relative is not None and o.relative_weight is not None:
            spec, name, reach = o.relative, o.relative_weight, o.relative.max_distance + 1
            key = (name, spec, o.causal)
            values["relative"] = self._tensor(key, lambda: _relative(self._weights.dense(name), spec, o.causal, reach))
            values["reach"] = reach
        return values


def _relative(weight: Tensor, spec: RelativeBias, causal: bool, reach: int) -> Tensor:
    """Biases ``(h, 2 * reach + 1)`` by distance, from those ``(buckets, h)`` by bucket; all beyond reach share one."""
    return weight[relative_buckets(torch.arange(-reach, reach + 1), spec, causal=causal)].T


def _kept(program: Program, operations: Sequence[Operation]) -> list[Register]:
    """Registers that each member of the team may compute for itself, where rows are few: norms that are not in place,
    of which nobody outside reads the result."""
    outside = [o for o in program.operations if not any(o is mine for mine in operations)]
    touched = {view.register for o in outside for view in p.views(o)} | {program.output}
    writers: dict[Register, list[Operation]] = {}
    for operation in operations:
        writers.setdefault(operation.target.register, []).append(operation)
    return [
        register
        for register, ops in writers.items()
        if register not in touched
        and all(isinstance(o, p.Norm) and o.target == register.whole and o.source.register != register for o in ops)
    ]


@dataclass(frozen=True)
class _Access:
    """What an operation reads and writes, and by whom: ``share`` is the same where members have the same rows."""

    reads: tuple[object, ...]
    writes: tuple[object, ...]
    share: object


def waits(operations: Sequence[Operation], kept: Sequence[Register]) -> list[bool]:
    """Before which operations the members have to wait for each other: where one reads or overwrites what another may
    not yet have written or read. ``kept`` registers are each member's own."""
    found: list[bool] = []
    pending: list[_Access] = []  # since the last wait
    for operation in operations:
        access = _access(operation, kept)
        wait = any(_conflict(before, access) for before in pending)
        found.append(wait)
        pending = [access] if wait else [*pending, access]
    return found


def _access(operation: Operation, kept: Sequence[Register]) -> _Access:
    views = [view for view in p.views(operation) if view.register not in kept]
    target = operation.target
    reads: list[object] = list(views)
    writes: list[object] = [view for view in views if view == target]
    share: object = ("row", target.register.taken)
    match operation:
        case p.Store():
            writes = [(operation.space, operation.layer)]
        case p.Attend():
            reads.append((operation.space, operation.layer))
            writes.append("scratch")
            share = None
        case p.Linear():
            writes.append("scratch")
            share = None
        case p.Take() | p.Cap():
            share = None
        case p.Norm() if target.register in kept:
            share = None
    return _Access(tuple(reads), tuple(writes), share)


def _conflict(before: _Access, after: _Access) -> bool:
    if before.share is not None and before.share == after.share:
        return False
    pairs = [(w, x) for w in before.writes for x in (*after.reads, *after.writes)]
    pairs += [(r, w) for r in before.reads for w in after.writes]
    return any(a.overlaps(b) if isinstance(a, View) and isinstance(b, View) else a == b for a, b in pairs)


# What each pass brings


class _Sinusoids:
    """A table of sinusoids that grows with the positions asked for."""

    def __init__(self, spec: Sinusoid, width: int, offset: int, struct: ctypes.Structure) -> None:
        self._spec, self._width, self._offset, self._struct = spec, width, offset, struct
        self._table = torch.zeros(0, width)

    def cover(self, positions: np.ndarray) -> None:
        """Have a line for each of these."""
        needed = int(positions.max(initial=0)) + self._offset + 1
        if needed > len(self._table):
            lines = torch.arange(max(256, 1 << (needed - 1).bit_length()))
            self._table = sinusoids(lines, self._width, self._spec).contiguous()
            self._struct.positions = self._table.data_ptr()


class _PassRecord:
    """The struct of a pass, filled again for each; what it points to is held until the next."""

    def __init__(self, program: Program, layout: _Layout) -> None:
        self._layout, self._registers = layout, program.registers
        self._record = _Pass()
        self._addresses = (_pointer * max(1, len(self._registers)))()
        self._turns = (_Turns * max(1, len(layout.ropes)))()
        self._spaces: dict[Space, _SpaceRecord] = {}
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
                    self._spaces[space] = _SpaceRecord(record.spaces[number])
                self._spaces[space].fill(held)
        for table in self._layout.sinusoids:
            table.cover(pass_.positions)
        self._held = (pass_, registers)
        return record


class _SpaceRecord:
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
                (_pointer * pages.n_layers)(*(t.data_ptr() for t in ts)) for ts in (pages.keys, pages.values)
            )
            struct.keys, struct.values = ctypes.addressof(keys), ctypes.addressof(values)
            struct.positions, struct.bfloat = _at(pages.positions), pages.dtype == torch.bfloat16
            self._pages, self._version, self._arrays = pages, pages.version, (keys, values, pages.positions)
        numbers = tuple(map(id, held.tables))
        if numbers != self._numbers:
            tables = (_pointer * max(1, len(numbers)))(*map(_at, held.tables))
            struct.tables = ctypes.addressof(tables)
            self._numbers, self._tables = numbers, (held.tables, tables)
        struct.lengths = _at(held.lengths)
        self._held = held


def _at(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
