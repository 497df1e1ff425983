"""Presets: published architectures by name, each as what it changes in a relative.

A file for each line of families. The values are those of the published ``config.json`` (or of the paper, where there is
none). Widths that a recipe's neighbour leaves alone are not repeated: read a line together with the lines it names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from plait.architecture import Architecture
from plait.presets import encoders, gemma, gpt, llama, llama_variants, mixtures, towers
from plait.words import nearest

TABLES = (towers, encoders, gpt, llama, gemma, llama_variants, mixtures)

# name: (the relative it starts from, what differs)
RECIPES: dict[str, tuple[str | None, dict[str, Any]]] = {k: v for table in TABLES for k, v in table.RECIPES.items()}


class PresetError(ValueError):
    """A name that no preset has; the message gives the nearest."""


def knobs(name: str) -> dict[str, Any]:
    """The fields of a preset, its relatives' included; what is not here is at its default."""
    relative, differences = RECIPES[name]
    return {**(knobs(relative) if relative else {}), **differences}


@cache
def preset(name: str) -> Architecture:
    """The published architecture of that name; ``PresetError`` names the nearest where there is none."""
    if name not in RECIPES:
        near = nearest(name, RECIPES)
        hint = f"did you mean {near!r}?" if near else f"the presets are {', '.join(RECIPES)}."
        raise PresetError(f"{name!r}: there is no such preset; {hint}")
    return Architecture(**knobs(name))


class _Presets(Mapping[str, Architecture]):
    """Every preset by name, built when it is asked for."""

    def __getitem__(self, name: str) -> Architecture:
        if name not in RECIPES:
            raise KeyError(name)
        return preset(name)

    def __iter__(self) -> Iterator[str]:
        return iter(RECIPES)

    def __len__(self) -> int:
        return len(RECIPES)


PRESETS: Mapping[str, Architecture] = _Presets()
