"""Places: the sections and keys of a recipe, their types, and the nearest to one that is not there."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from plait.architecture import Architecture
from plait.training.foreign import FOREIGN
from plait.training.settings import Recipe
from plait.words import nearest

SECTIONS: dict[str, type] = typing.get_type_hints(Recipe)
EXTRA = "overrides"  # the field of [model] that holds an Architecture's own


class RecipeError(ValueError):
    """A recipe that says no training; the message names section and key, the value, and what would be right."""


def keys(section: str) -> dict[str, dataclasses.Field[Any]]:
    """The settings of a section by their names in a file, with their records' fields."""
    return {f.metadata.get("key", f.name): f for f in dataclasses.fields(SECTIONS[section]) if f.name != EXTRA}


def hint_of(section: str, key: str) -> Any:
    """The type of a setting."""
    return typing.get_type_hints(SECTIONS[section])[keys(section)[key].name]


def get(recipe: Recipe, place: str) -> Any:
    """The value of ``section.key``."""
    section, key = place.split(".")
    return getattr(getattr(recipe, section), keys(section)[key].name)


def meant(key: str, section: str | None) -> str:
    """The setting that was probably meant: of this section first, then of any, then by another library's name."""
    word = key.replace("-", "_").lower()
    if word in FOREIGN:
        return f"did you mean {FOREIGN[word]}?"
    tables = {name: [*keys(name), *(architecture_fields() if name == "model" else [])] for name in SECTIONS}
    if section is None and (near := nearest(word, tables, cutoff=0.7)):
        return f"did you mean [{near}]?"
    if section is not None and (near := nearest(word, tables[section], cutoff=0.6)):
        return f"did you mean {near!r}?"
    elsewhere = {name: place for place, names in reversed(tables.items()) for name in names}
    if near := nearest(word, elsewhere, cutoff=0.6):
        return f"did you mean {elsewhere[near]}.{near}?"
    if section is None:
        return f"the sections are {', '.join(tables)}."
    return f"the settings are {', '.join(keys(section))}" + (
        ", and an Architecture's fields." if section == "model" else "."
    )


def architecture_fields() -> list[str]:
    """What [model] may say besides."""
    return [f.name for f in dataclasses.fields(Architecture)]
