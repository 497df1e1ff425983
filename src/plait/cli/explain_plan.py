"""``plait explain-plan``: the program that the engine makes of a model, and what runs each of its operations."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

from plait.cli.models import Loading, architecture_of, has_weights
from plait.cli.printing import Format, as_json, notice, table

if TYPE_CHECKING:
    from plait.engine.explain import Line
    from plait.engine.program import Operation

Dtype = Literal["stored", "float32", "bfloat16"]
Quantize = Literal["int8", "int4", "int4_min"]


def explain_plan(
    model: str,
    /,
    *,
    length: int | None = None,
    dtype: Dtype = "stored",
    quantize: Quantize | None = None,
    every: bool = False,
    format: Format = "text",
) -> None:
    """Print the program that runs a model: its operations, what each costs for one token, and what computes it.

    Parameters
    ----------
    model
        A preset, a recipe (.toml), a folder, a .gguf file, a hub name, or package:NAME.
    length
        Tokens that the one counted attends to, its own included; an encoder reads as many. What is not given is 512,
        or the longest row the model takes.
    dtype
        The type that weights are kept in; "stored" is the file's.
    quantize
        What weights would be rounded to.
    every
        A line for each operation, in order, instead of one for each kind.
    format
        json prints everything.
    """
    from plait.account import account
    from plait.engine import kernels
    from plait.engine.explain import explain
    from plait.engine.plan import Load

    if length is not None and length < 1:
        raise ValueError(f"--length: {length} is too few; give at least 1.")
    if has_weights(model):
        checkpoint = Loading().open(model, weights=False)
        architecture, weights = checkpoint.architecture, checkpoint.weights()
    else:
        architecture, weights = architecture_of(model), None
    length = length or account(architecture).usual_length()
    loads = {"encoder": Load(length, length, length), "decoder": Load(1, 1, length, length)}
    lines = explain(architecture, loads, weights, dtype=dtype, quantization=quantize)
    if format == "json":
        as_json([_plain(line) for line in lines])
        return
    if not kernels.available():
        notice(kernels.why_not())
    if every:
        table([{**_plain(line), "operation": _written(line.operation)} for line in lines])
    else:
        table(_summed([_plain(line) for line in lines]))
    passes = {"encoder": f"{length:,} tokens", "decoder": f"one token, which attends to {length:,}"}
    read = "; ".join(f"{tower}: {passes[tower]}" for tower in dict.fromkeys(line.tower for line in lines))
    kernel = sum(line.implementation != "torch" for line in lines)
    print(f"\nCounted: {read}.\n{kernel} of {len(lines)} operations run on kernels; the rest in torch.")


def _plain(line: Line) -> dict[str, Any]:
    return {
        "tower": line.tower,
        "operation": type(line.operation).__name__,
        "runs on": line.implementation,
        "weights as": line.weights,
        "FLOPs": line.flops,
        "parameters": line.parameters,
        "bytes": line.bytes,
    }


def _summed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each kind of operation of a tower, and the total."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines:
        key = tuple(line[name] for name in ("tower", "operation", "runs on", "weights as"))
        row = rows.setdefault(key, {**dict(zip(("tower", "operation", "runs on", "weights as"), key, strict=True))})
        row["times"] = row.get("times", 0) + 1
        for name in ("FLOPs", "parameters", "bytes"):
            row[name] = row.get(name, 0) + line[name]
    sums = {name: sum(row[name] for row in rows.values()) for name in ("times", "FLOPs", "parameters", "bytes")}
    return [*rows.values(), {"tower": "total", "operation": "", "runs on": "", "weights as": "", **sums}]


def _written(operation: Operation) -> str:
    """An operation as a line of the program: ``x += Linear(mix; output)``."""
    from plait.engine.program import View

    reads = [
        f"{field.name} {getattr(operation, field.name)}"
        for field in dataclasses.fields(operation)
        if field.name != "target" and isinstance(getattr(operation, field.name), View)
    ]
    return f"{operation.target} <- {type(operation).__name__}({', '.join([*reads, *operation.weights])})"
