"""``plait plan``: whether training by a recipe fits on some devices, and how; nothing is read but the recipe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.printing import Format, as_json, notice, table, working

if TYPE_CHECKING:
    from plait.account.plan import Choice, Way

UNITS = {
    **{unit: 1000**power for power, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
    **{unit: 1024**power for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
}


def plan(
    recipe: Path,
    /,
    *options: Annotated[str, Parameter(allow_leading_hyphen=True)],
    devices: int,
    device_memory: str,
    device: Literal["cuda", "cpu"] = "cuda",
    format: Format = "text",
) -> int:
    """Say whether training fits, and how, on paper; the exit status is 1 if it does not.

    Bytes are of one device. What only the data could tell is taken at its largest: rows are as long as data.length
    allows. A twentieth of a device is left to its driver and to gaps between tensors.

    Parameters
    ----------
    recipe
        A TOML file as for plait train. Its data need not be here, and of a checkpoint the config is enough.
    options
        Settings over the file's, as --section.key value.
    devices
        How many there are.
    device_memory
        Memory of each, with its unit: 80GB is 80,000,000,000 bytes, 80GiB a little more.
    device
        Whose kernels compute; a CPU's keep more.
    format
        json prints everything.
    """
    if devices < 1:
        raise ValueError(f"--devices: {devices} cannot train anything; give at least 1.")
    memory = bytes_of(device_memory)
    with working(f"reading {recipe}"):
        from plait.account.plan import best, ways
        from plait.training.planned import LEARNT, spreads_of, step_of, without_data
        from plait.training.recipe import read_recipe

        settings = without_data(read_recipe(recipe, options), device)
        step = step_of(settings, device)
        spreads, refused = spreads_of(settings, step, devices)
        found = ways(step, spreads, memory)
    chosen = best(found)
    least = min((way.least for way in found), key=lambda choice: choice.needs)
    if settings.model.checkpoint is None and settings.data.tokenizer in LEARNT:
        tokens = step.architecture.vocab_size
        notice(f"data.tokenizer: only the data tells how many tokens there will be; {tokens} are counted.")
    if format == "json":
        as_json(
            {
                "devices": devices,
                "device_memory": memory,
                "rows": step.rows,
                "flops": step.flops(twice=step.twice),
                "fits": chosen is not None,
                "ways": [plain(way) for way in found],
                "refused": refused,
                "recommended": None if chosen is None else told(chosen),
                "least_memory": least.needs,
            }
        )
        return 0 if chosen is not None else 1
    show(found, refused, memory)
    if chosen is None:
        print(
            f"\nIt does not fit. The least memory that would do is {size(least.needs)} a device, with: {words(least)}"
        )
        return 1
    as_it_is = words(chosen) in [words(way.said) for way in found if way.said.parallel == settings.run.parallel]
    print(f"\n{'It fits as it is' if as_it_is else 'It fits'}: {words(chosen)}")
    return 0


def bytes_of(text: str) -> int:
    """``80GB`` in bytes; ``ValueError`` for what is none."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = next((unit for unit in UNITS if match and unit.lower() == match[2].lower()), None)
    if match is None or (match[2] and unit is None):
        raise ValueError(f"--device-memory: {text!r} is no amount of memory; give one as in 80GB or 79.6GiB.")
    if unit is None:
        raise ValueError(f"--device-memory: {text!r} has no unit; say {text.strip()}GB or {text.strip()}GiB.")
    if (found := int(float(match[1]) * UNITS[unit])) < 1:
        raise ValueError(f"--device-memory: {text!r} holds nothing; give more.")
    return found


def show(found: list[Way], refused: dict[str, str], memory: int) -> None:
    """The ways side by side, a line for each thing that takes memory."""
    choices = [way.said for way in found]
    step = choices[0].step
    held = [choice.memory.to_dict() for choice in choices]
    columns = {choice.parallel: values for choice, values in zip(choices, held, strict=True)}
    rows: list[dict[str, Any]] = []
    for name in held[0]:
        if any(values[name] for values in held):
            rows.append({"bytes on a device": name, **{way: values[name] for way, values in columns.items()}})
    rows.append({"bytes on a device": "sum", **{choice.parallel: choice.memory.total for choice in choices}})
    rows.append({"bytes on a device": "share of its memory, %", **{c.parallel: share(c, memory) for c in choices}})
    rows.append({"bytes on a device": "sent in a step", **{choice.parallel: choice.wire for choice in choices}})
    table([{name: value if isinstance(value, str) else f"{value:,}" for name, value in row.items()} for row in rows])
    print(f"\na step: {step.rows:,} rows, {step.flops(twice=step.twice):,} FLOPs on all devices\n")
    table(
        [{"way": way.said.parallel, "as it is": verdict(way.said, memory), "fits with": fitting(way)} for way in found]
        + [{"way": name, "as it is": "cannot be", "fits with": reason} for name, reason in refused.items()]
    )


def share(choice: Choice, memory: int) -> str:
    """Of a device's memory, in percent."""
    return f"{100 * choice.memory.total / memory:.1f}"


def verdict(choice: Choice, memory: int) -> str:
    """Whether a choice fits."""
    return "fits" if choice.needs <= memory else f"needs {size(choice.needs)}"


def fitting(way: Way) -> str:
    """What must be said for a way to fit."""
    return words(way.fits) if way.fits is not None else f"nothing; at least {size(way.least.needs)} a device"


def words(choice: Choice) -> str:
    """A choice as options of plait train."""
    said = [f"--run.parallel {choice.parallel}", f"--data.micro_batches {choice.micro_batches}"]
    return " ".join(said + (["--run.activation_checkpointing"] if choice.twice else []))


def size(count: int) -> str:
    """Bytes as a person reads them, rounded up."""
    for unit in ("TB", "GB", "MB", "kB"):
        if count >= UNITS[unit]:
            return f"{-(-count * 10 // UNITS[unit]) / 10:,.1f} {unit}"
    return f"{count} B"


def told(choice: Choice) -> dict[str, Any]:
    """A choice as plain data."""
    return {
        "parallel": choice.parallel,
        "micro_batches": choice.micro_batches,
        "activation_checkpointing": choice.twice,
        "options": words(choice),
        "bytes": {**choice.memory.to_dict(), "total": choice.memory.total},
        "needs": choice.needs,
        "wire": choice.wire,
    }


def plain(way: Way) -> dict[str, Any]:
    """A way as plain data."""
    return {"said": told(way.said), "fits": None if way.fits is None else told(way.fits), "least": told(way.least)}
