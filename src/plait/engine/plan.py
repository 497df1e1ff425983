"""A plan: what each operation of a program costs, in the terms of ``plait.account``, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from plait.engine import program as p
from plait.engine.program import Operation, Program
from plait.parameters import Shape


@dataclass(frozen=True)
class Load:
    """The pass that is counted: rows read, rows whose logits are wanted, and tokens that each row attends to."""

    rows: int
    wanted: int
    keys: int
    memory: int = 0  # of a source


@dataclass(frozen=True)
class Cost:
    """An operation's own share: products are two FLOPs for each multiply-and-add, scores counted in full."""

    operation: Operation
    flops: int
    parameters: int  # numbers it reads besides registers; a tied table counts at its first reader


def costs(program: Program, shapes: Mapping[str, Shape], load: Load, seen: set[str] | None = None) -> list[Cost]:
    """One for each operation, in order; their FLOPs are the account's, their parameters its parameters.

    ``seen``: parameters that another program has counted; those counted here are added.
    """
    seen = set() if seen is None else seen
    found: list[Cost] = []
    for operation in program.operations:
        new = [name for name in operation.weights if name not in seen]
        seen.update(new)
        found.append(Cost(operation, _flops(operation, shapes, load), sum(prod(shapes[name]) for name in new)))
    return found


def _flops(operation: Operation, shapes: Mapping[str, Shape], load: Load) -> int:
    match operation:
        case p.Linear():
            rows = load.wanted if operation.target.register.taken else load.rows
            return 2 * rows * sum(prod(shapes[name]) for name in operation.weight)
        case p.Experts():
            names = [name for name in (operation.gate, operation.up, operation.down) if name is not None]
            return 2 * load.rows * operation.per_token * sum(prod(shapes[name][1:]) for name in names)
        case p.Attend():
            keys = load.memory if operation.space == "memory" else load.keys
            return 2 * 2 * load.rows * operation.n_heads * operation.d_head * keys
    return 0
