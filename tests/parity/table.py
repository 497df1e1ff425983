"""The table of docs/parity.md: every family with its file, and what its recipes give beside the reference library.

make parity        writes it; some minutes
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import torch

import plait
import plait.families
from plait.families import FAMILIES, Family, family_for
from tests.families.recipes import RECIPES
from tests.parity.comparing import distances, greedy, stored

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "parity.md"
MARK = "\n| family |"
LINE = "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |"
HEAD = ("family", "kind", "file", "lines", "recipes", "float32", "float64", "greedy", "bytes", "what it is")


@dataclass
class Row:
    """What all recipes of one family give, at worst."""

    recipes: int = 0
    single: float = 0.0
    double: float = 0.0
    greedy: list[bool] = field(default_factory=list[bool])
    bytes: list[bool] = field(default_factory=list[bool])


def homes() -> dict[str, Path]:
    """The file of each family's table: where its name is given."""
    found: dict[str, Path] = {}
    for info in pkgutil.iter_modules(plait.families.__path__):
        module = importlib.import_module(f"plait.families.{info.name}")
        path = Path(str(module.__file__))
        source = path.read_text("utf-8")
        for name, value in vars(module).items():
            if isinstance(value, Family) and re.search(rf"^{name} = ", source, re.MULTILINE):
                found[value.name] = path
    return found


def kind(family: Family) -> str:
    """Which towers it has."""
    towers = [name for name in ("encoder", "decoder") if f"n_{name}_layers" in family.settings]
    return "-".join(towers)


def known(family: Family, places: dict[str, Path]) -> tuple[str, str, str, int]:
    """The cells that need no measuring."""
    path = places[family.name]
    return f"`{family.name}`", kind(family), path.name, len(path.read_text("utf-8").splitlines())


def what(path: Path) -> str:
    """The sentence that opens a file."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n\n")[0].replace("\n", " ")


def said(held: list[bool]) -> str:
    """How many of those tried held; nothing where none was tried."""
    return f"{sum(held)} of {len(held)}" if held else ""


def measured(reference: ModuleType) -> Iterator[tuple[str, Row]]:
    """One recipe after the other, by the family's name."""
    for i, (name, recipe) in enumerate(RECIPES.items(), 1):
        print(f"\r{i} of {len(RECIPES)}: {name:40}", end="", file=sys.stderr)
        kind = getattr(reference, recipe.config).model_type
        family = family_for({"model_type": kind, "architectures": [recipe.model]}).name
        row = Row(recipes=1)
        for length in recipe.lengths:
            with tempfile.TemporaryDirectory() as folder:
                far = distances(name, length, reference, Path(folder))
                row.single = max(row.single, far.single)
                row.double = max(row.double, far.double, far.padded)
                plait.save(plait.load(folder), Path(folder) / "saved")
                row.bytes.append(stored(Path(folder)) == stored(Path(folder) / "saved"))
            with tempfile.TemporaryDirectory() as folder:
                found = greedy(name, length, reference, Path(folder))
                if not isinstance(found, str):
                    row.greedy.append(found[0] == found[1])
        yield family, row
    print(file=sys.stderr)


def table(reference: ModuleType) -> str:
    """The page's table."""
    rows = {family.name: Row() for family in FAMILIES}
    for name, row in measured(reference):
        all_ = rows[name]
        all_.recipes += 1
        all_.single, all_.double = max(all_.single, row.single), max(all_.double, row.double)
        all_.greedy += row.greedy
        all_.bytes += row.bytes
    places = homes()
    lines = [LINE.format(*HEAD), LINE.format("---", "---", "---", *["---:"] * 6, "---")]
    for family in FAMILIES:
        row = rows[family.name]
        cells = (
            *known(family, places),
            row.recipes,
            *((f"{row.single:.0e}", f"{row.double:.0e}") if row.recipes else ("", "")),
            said(row.greedy),
            said(row.bytes),
            what(places[family.name]),
        )
        lines.append(LINE.format(*cells))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.append(str(ROOT / ".reference"))
    torch.set_num_threads(1)
    written = table(importlib.import_module("transformers"))
    above = PAGE.read_text("utf-8").partition(MARK)[0]
    PAGE.write_text(f"{above}\n{written}", "utf-8")
