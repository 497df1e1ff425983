"""Structs: those of csrc/step.h for ctypes, field for field."""

from __future__ import annotations

import ctypes
from typing import Any

from plait.engine import program as p
from plait.engine.program import Space

SPACES: tuple[Space, ...] = ("self", "memory", "pass")  # their places in a pass
integer, number, pointer = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


def struct(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """Fields by type: ``("a b", type)``."""
    flat = [(field, kind) for fields_, kind in fields for field in fields_.split()]
    return type(name, (ctypes.Structure,), {"_fields_": flat})


View = struct("View", ("reg start width", integer))
OPERATIONS: dict[type[p.Operation], type[ctypes.Structure]] = {  # in the order of csrc/step.h's Kind
    p.Embed: struct(
        "Embed", ("target", View), ("table positions types", pointer), ("offset", integer), ("scale", number)
    ),
    p.Norm: struct(
        "Norm",
        ("target source", View),
        ("width lines centred", integer),
        ("weight bias", pointer),
        ("eps", number),
    ),
    p.Linear: struct(
        "Linear",
        ("target source", View),
        ("matrix bias", pointer),
        ("activation add", integer),
        ("skip scale", number),
    ),
    p.Clamp: struct("Clamp", ("target", View), ("limit", number)),
    p.Rotate: struct("Rotate", ("target", View), ("d_head turns interleaved", integer)),
    p.Store: struct("Store", ("keys values", View), ("space layer d_head", integer)),
    p.Attend: struct(
        "Attend",
        ("target queries", View),
        ("space layer heads kv_heads d_head causal window", integer),
        ("slopes relative sinks", pointer),
        ("reach", integer),
        ("scale softcap", number),
    ),
    p.Activate: struct("Activate", ("target", View), ("activation", integer)),
    p.Gate: struct("Gate", ("target up", View), ("activation", integer), ("limit offset", number)),
    p.Add: struct("Add", ("target source", View), ("skip scale", number)),
    p.Take: struct("Take", ("target source", View)),
    p.Cap: struct("Cap", ("target", View), ("scale softcap", number)),
    p.Route: struct(
        "Route",
        ("target", View),
        ("score_bias", pointer),
        ("sigmoid per_token groups top_groups renormalize", integer),
        ("scale", number),
    ),
    p.Experts: struct(
        "Experts",
        ("target source routes shared shared_gate", View),
        ("gate up down gate_bias up_bias down_bias", pointer),
        ("n_experts per_token activation", integer),
        ("limit offset", number),
    ),
}
KINDS = {kind: place for place, kind in enumerate(OPERATIONS)}
Operation = struct("Operation", ("kind", integer), ("fields", pointer), ("wait_few wait_many", integer))
Held = struct("Held", ("keys values positions tables lengths", pointer), ("bfloat", integer))
Turns = struct("Turns", ("table lines", pointer), ("width", integer))
Pass = struct(
    "Pass",
    ("rows n_sequences n_taken", integer),
    ("tokens positions orders sequences begins taken types registers turns", pointer),
    ("spaces", Held * 3),
)
Register = struct("Register", ("width taken kept", integer))
Program = struct(
    "Program",
    ("operations", pointer),
    ("n_operations", integer),
    ("registers", pointer),
    ("n_registers kept_width", integer),
)


def sizes(library: ctypes.CDLL) -> tuple[list[int], list[int]]:
    """Of all structs, here and in the library."""
    mine = [ctypes.sizeof(kind) for kind in (*OPERATIONS.values(), Pass, Program)]
    theirs = (integer * len(mine))()
    library.plait_step_sizes(theirs)
    return mine, list(theirs)
