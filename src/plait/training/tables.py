"""Tables: every setting of a recipe with its meaning, default and bounds, from where they are declared."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from plait.training.places import SECTIONS, hint_of, keys


@dataclass(frozen=True)
class Row:
    """One setting, in words."""

    key: str
    kind: str
    default: str
    meaning: str


def rows(section: str) -> list[Row]:
    """The settings of a section."""
    return [
        Row(key, _kind(hint_of(section, key), field.metadata), _default(field), field.metadata["help"])
        for key, field in keys(section).items()
    ]


def markdown() -> str:
    """A table for each section: what docs/training.md has between its marks."""
    parts = []
    for section in SECTIONS:
        lines = [f"### [{section}]", "", "| key | what it may be | default | meaning |", "|---|---|---|---|"]
        for row in rows(section):
            cells = (f"`{row.key}`", row.kind, row.default, row.meaning)
            lines.append(
                f"| {' | '.join(cell.replace('|', chr(92) + '|').replace('*', chr(92) + '*') for cell in cells)} |"
            )
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _kind(hint: Any, bounds: Any) -> str:
    options = [option for option in (get_args(hint) if _is_union(hint) else (hint,)) if option is not type(None)]
    words = " or ".join(map(_word, options))
    signs = {"above": ">", "least": ">=", "below": "<", "most": "<="}
    limits = ", ".join(f"{sign} {bounds[name]}" for name, sign in signs.items() if name in bounds)
    return f"{words} {limits}".strip()


def _is_union(hint: Any) -> bool:
    return type(None) in get_args(hint) and get_origin(hint) is not Literal


def _word(option: Any) -> str:
    if get_origin(option) is Literal:
        return ", ".join(get_args(option))
    if get_origin(option) is tuple:
        return "list of texts"
    return {int: "whole number", float: "number", bool: "true or false", str: "text"}[option]


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)
