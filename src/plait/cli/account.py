"""``plait account``, ``diff`` and ``presets``: architectures on paper, counted and compared; no weight is read."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, Literal

from plait.cli.models import architecture_of
from plait.cli.printing import Format, as_json, notice, table

if TYPE_CHECKING:
    from plait.account import Account
    from plait.architecture import Architecture

Stored = Literal["fp32", "bf16", "fp16", "int8", "int4"]


def account(
    model: str,
    /,
    *,
    length: int | None = None,
    batch: int = 1,
    dtype: Stored = "fp32",
    by: Literal["part", "layer", "tensor"] = "part",
    sliding: bool = False,
    format: Format = "text",
) -> None:
    """Count a model's parameters, FLOPs and bytes, on paper.

    Parameters
    ----------
    model
        A preset, a recipe (.toml), a folder, a .gguf file, a hub name, or package:NAME.
    length
        Tokens in a row; what is not given is 512, or the longest row the model takes.
    batch
        Rows.
    dtype
        How the weights and the cache are stored; a cache of an int8 or int4 model is bf16.
    by
        What the lines of the table are.
    sliding
        Let layers with a window keep only the tokens that are in it; otherwise every layer's cache is of the whole row.
    format
        json prints everything.
    """
    from plait.account import account

    for name, value in (("--length", length), ("--batch", batch)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: {value} is too few; give at least 1.")
    architecture = architecture_of(model)
    counts = account(architecture)
    length, longest = length or counts.usual_length(), architecture.max_length
    if longest is not None and length > longest:
        notice(f"--length: {model} takes rows of at most {longest:,} tokens; {length:,} are counted on paper alone.")
    if format == "json":
        as_json(counts.to_dict(length, batch, sliding=sliding))
        return
    print(f"{model}: {in_words(architecture)}\n")
    if by == "part":
        named = {"part": "part", "parameters": "parameters", "share": "share %", "flops_per_token": "FLOPs a token"}
        rows = [row._asdict() | {"share": round(100 * row.share, 2)} for row in counts.rows(length, dtype)]
        table([{named.get(name, f"bytes as {dtype}"): value for name, value in row.items()} for row in rows])
    elif by == "layer":
        table([{"place": place, "parameters": n} for place, n in counts.by_layer.items()])
    else:
        table([{"tensor": name, "shape": " x ".join(map(str, shape))} for name, shape in counts.tensors.items()])
    print()
    table(work(counts, length, batch, dtype, sliding))


def in_words(architecture: Architecture) -> str:
    """An architecture in a line."""
    layers = " + ".join(str(tower.n_layers) for tower in architecture.towers)
    heads = f"{architecture.n_heads} heads of {architecture.d_head}"
    if architecture.n_kv_heads != architecture.n_heads:
        heads += f" ({architecture.n_kv_heads} for keys and values)"
    sizes = f"d_model {architecture.d_model:,}, d_ff {architecture.d_ff:,}, {architecture.vocab_size:,} tokens"
    return f"{architecture.kind} of {layers} layers, {heads}, {sizes}"


def work(counts: Account, length: int, batch: int, dtype: Stored, sliding: bool) -> list[dict[str, Any]]:
    """What running it takes: rows of what, and how much."""
    rows: list[dict[str, Any]] = []
    shape = f"{batch:,} x {length:,} tokens"

    def add(what: str, amount: int, unit: str) -> None:
        rows.append({"work and memory": what, "amount": amount, "unit": unit})

    if counts.active_parameters != counts.parameters:
        add("parameters that a token meets", counts.active_parameters, "numbers")
    add(f"forward pass, {shape}", counts.flops(length, batch=batch).total, "FLOPs")
    add(f"training step, {shape}", counts.training_flops(length, batch=batch).total, "FLOPs")
    if counts.architecture.kind != "encoder":
        for cached, said in ((True, "with a cache"), (False, "without a cache")):
            token = counts.token_flops(length - 1, batch=batch, cached=cached).total
            add(f"token {length:,} of {batch:,} {'row' if batch == 1 else 'rows'}, {said}", token, "FLOPs")
    add(f"weights as {dtype}", counts.bytes(dtype), "bytes")
    if counts.architecture.kind != "encoder":
        kept = "bf16" if dtype.startswith("int") else dtype
        add(f"cache as {kept}, {shape}", counts.cache_bytes(length, batch=batch, dtype=kept, sliding=sliding), "bytes")
    return rows


def diff(a: str, b: str, /, *, format: Format = "text") -> None:
    """Print the knobs in which two architectures differ.

    Parameters
    ----------
    a
        A preset, a recipe (.toml), a folder, a .gguf file, a hub name, or package:NAME.
    b
        Another.
    format
        json prints one object, a pair for each knob.
    """
    pairs = architecture_of(a).difference(architecture_of(b))
    if format == "json":
        as_json({name: [plain(value) for value in pair] for name, pair in pairs.items()})
    elif pairs:
        table(
            [{"knob": name, f"A: {a}": said(ours), f"B: {b}": said(theirs)} for name, (ours, theirs) in pairs.items()]
        )
    else:
        notice(f"{a} and {b} are one architecture.")


def plain(value: Any) -> Any:
    """A knob's value as JSON has it: a record becomes an object of the fields that are not at their default."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    fields = {f.name: (getattr(value, f.name), f.default) for f in dataclasses.fields(value)}
    return {name: plain(value) for name, (value, default) in fields.items() if value != default}


def said(value: Any) -> str:
    """A knob's value in a cell."""
    value = plain(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {said(item)}" for name, item in value.items()) or "default"
    if isinstance(value, list):
        runs = [(len(list(run)), said(item)) for item, run in itertools.groupby(value)]
        return "; ".join(f"{n} x {item}" if n > 1 else item for n, item in runs) or "none"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def presets(*, format: Format = "text") -> None:
    """List the published architectures that are known by name.

    Parameters
    ----------
    format
        json prints one list.
    """
    from plait.account import account
    from plait.presets import PRESETS, preset

    rows = []
    for name in PRESETS:
        architecture = preset(name)
        rows.append(
            {
                "preset": name,
                "kind": architecture.kind,
                "layers": " + ".join(str(tower.n_layers) for tower in architecture.towers),
                "d_model": architecture.d_model,
                "parameters": account(architecture).parameters,
            }
        )
    as_json(rows) if format == "json" else table(rows)
