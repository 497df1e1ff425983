"""Explain: a model's programs on paper, a line for each operation, with its cost and what would run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from plait.architecture import Architecture
from plait.checkpoint.quantise import block_types
from plait.engine.lower import lower
from plait.engine.packed import FORMATS, PANEL
from plait.engine.plan import Load, costs
from plait.engine.program import Operation, whole
from plait.engine.weights import Formats, matrices_of
from plait.model import Transformer
from plait.parameters import parameters

if TYPE_CHECKING:
    from plait.checkpoint.weights import Weights


@dataclass(frozen=True)
class Line:
    """One operation: ``implementation`` is ``"torch"`` or a kernel; ``weights`` the format that its matrix has, and
    ``bytes`` what its parameters take, each counted where it is read first."""

    tower: str
    operation: Operation
    implementation: str
    weights: str
    flops: int
    parameters: int
    bytes: int


def explain(
    architecture: Architecture,
    loads: Mapping[str, Load],
    weights: Weights | None = None,
    *,
    dtype: str = "stored",
    quantization: str | None = None,
) -> list[Line]:
    """The programs of an architecture, for passes of these ``loads``; ``weights`` tell how they are stored."""
    from plait.engine.compiled import implementations

    with torch.device("meta"):
        model = Transformer(architecture)
    formats = Formats(weights, dtype, block_types(architecture, quantization) if quantization else None)
    shapes = parameters(architecture)
    found: list[Line] = []
    seen, counted = set[str](), set[str]()
    for tower, program in lower(model, formats).items():
        ran = implementations(program)
        for cost, (operation, implementation) in zip(costs(program, shapes, loads[tower], seen), ran, strict=True):
            format, size = "", 4 * cost.parameters
            names = [name for matrix in matrices_of(operation) for name in matrix]
            if names:
                format = formats(names[0])
                new = [name for name in names if name not in counted]
                counted.update(new)
                matrices = [shapes[whole(name)[0]][-2:] for name in new]
                plain = sum(rows * columns for rows, columns in matrices)
                size = 4 * (cost.parameters - plain) + sum(_bytes(format, *matrix) for matrix in matrices)
            found.append(Line(tower, operation, implementation, format, cost.flops, cost.parameters, size))
    return found


def _bytes(format: str, rows: int, columns: int) -> int:
    """Of a matrix, without the rows and inputs that fill up its last panel and a plain format's last group."""
    layout = FORMATS[format]
    if layout.scale is None:
        return rows * columns * layout.bytes // (PANEL * layout.inputs)
    return rows * -(-columns // layout.inputs) * layout.bytes // PANEL
