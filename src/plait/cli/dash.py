"""A bare ``-`` is an argument like any other: it keeps its place among them and may be an option's value.

The parser takes it for an option, so something that no command line can hold stands in for it there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DASH, STAND_IN = "-", "\0dash"


def hidden(tokens: Iterable[str]) -> list[str]:
    """The arguments as the parser is given them."""
    return [STAND_IN if token == DASH else token for token in tokens]


def shown(value: Any) -> Any:
    """What the parser made of them, however nested, as it was meant."""
    if isinstance(value, str | Path):
        return type(value)(DASH) if str(value) == STAND_IN else value
    if isinstance(value, tuple | list):
        return type(value)(map(shown, value))
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{f.name: shown(getattr(value, f.name)) for f in dataclasses.fields(value)})
    return value


def named(message: str) -> str:
    """The parser's complaint about it."""
    return message.replace(repr(STAND_IN)[1:-1], DASH).replace(STAND_IN, DASH)
