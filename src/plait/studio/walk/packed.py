"""Packed: a walk as data of a page: its numbers as float32 in base64, every array once, and its steps.

Layers whose steps are alike share one list of them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor

from plait.inspection import InspectionError
from plait.inspection.walk import Step, Sum, Told, Walk
from plait.inspection.walk.step import Filling
from plait.studio.walk.filled import constant, shown

LIMIT = 48  # megabytes of a page


def packed(walk: Walk, *, megabytes: float = LIMIT) -> dict[str, Any]:
    """The data. Raises ``InspectionError`` where its numbers take more room than that."""
    blocks: dict[bytes, int] = {}
    arrays = {name: [_numbered(value, blocks), *value.shape] for name, value in walk.arrays.items()}
    size, n = sum(map(len, blocks)) * 4 / 3 / 1e6, max(len(told.tokens) for told in walk.towers)
    if size > megabytes:
        fitting = int(n * megabytes / size)
        raise InspectionError(
            f"text: a page of its {n} tokens has {size:.0f} MB of numbers, and {megabytes:g} are the most; "
            + (f"about {fitting} tokens fit." if fitting else "not one of them fits.")
        )
    return {
        "blocks": [base64.b64encode(block).decode() for block in blocks],
        "arrays": arrays,
        "texts": {name: [list(map(shown, row)) for row in rows] for name, rows in walk.texts.items()},
        "towers": [_tower(told) for told in walk.towers],
    }


def _numbered(value: Tensor, blocks: dict[bytes, int]) -> int:
    """Which block has the values."""
    numbers = np.ascontiguousarray(value.cpu().float().numpy(), "<f4").tobytes()
    return blocks.setdefault(numbers, len(blocks))


def _tower(told: Told) -> dict[str, Any]:
    plans: list[list[dict[str, Any]]] = []
    which: list[int] = []
    for layer in told.layers:
        plan = _plan(layer)
        if plan not in plans:
            plans.append(plan)
        which.append(plans.index(plan))
    return {
        "name": told.name,
        "tokens": list(map(shown, told.tokens)),
        "heads": told.n_heads,
        "group": told.group,
        "place": told.place,
        "before": _plan(told.before),
        "plans": plans,
        "layers": which,
        "after": _plan(told.after),
    }


def _plan(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [_step(step) for step in steps]


def _step(step: Step) -> dict[str, Any]:
    data = asdict(step)
    data["slots"] = {name: _slot(slot) for name, slot in step.slots.items()}
    data["formulas"] = [
        {
            "symbols": one.symbols,
            "filled": one.filled,
            "slots": {name: _slot(slot) for name, slot in one.slots.items()},
        }
        for one in step.formulas
    ]
    return data


def _slot(slot: Filling) -> Any:
    """A sum as its two rows, a constant as text, anything else as its form and place."""
    if isinstance(slot, Sum):
        return asdict(slot)
    return constant(slot) if isinstance(slot, int | float | str) else [slot.form, slot.at]
