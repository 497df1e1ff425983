"""Waits: before which operations the members of a team have to wait for each other.

norm -> add              none: a member has the same rows in both, and reads what it wrote itself
norm -> linear -> add    two: a product reads whole rows and is divided by columns, the others by rows
norm (kept) -> linear    none: every member has computed the whole norm for itself, in memory of its own
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plait.engine import program as p
from plait.engine.program import Operation, Program, Register, View


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


def kept_registers(program: Program, operations: Sequence[Operation]) -> list[Register]:
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
        case p.Linear() | p.Experts():
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
