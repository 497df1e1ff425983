"""Records: what the fields of a frozen record may hold, and the plain data, JSON or TOML that it is written as.

It knows a record by its annotations and defaults alone. ``None`` where it is not the default is written "none", because
TOML has no null.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin


class ArchitectureError(ValueError):
    """A record that describes no Transformer; the message names the field, its value and what would be right."""


def check_types(record: Any, path: str) -> None:
    """Hold every field of a new record, which stands at ``path``, to its annotation. Whole numbers become floats where
    those belong, and lists tuples. Raises ``ArchitectureError``."""
    hints = _hints(type(record))
    for f in dataclasses.fields(record):
        value, hint = getattr(record, f.name), hints[f.name]
        if value is None and f.default is None:  # left out, also where it is then derived
            continue
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and not _accepts(value, hint)
            and abs(value) < 2**1000  # a float holds no more
            and _accepts(float(value), hint)
        ):
            object.__setattr__(record, f.name, float(value))
        elif isinstance(value, list) and _accepts(tuple(value), hint):
            object.__setattr__(record, f.name, tuple(value))
        elif not _accepts(value, hint):
            where = f"{path}.{f.name}" if path else f.name
            raise ArchitectureError(f"{where}: {value!r} is not {_in_words(hint, value)}.")


_hints_of: dict[type, dict[str, Any]] = {}


def _hints(record: type) -> dict[str, Any]:
    if record not in _hints_of:
        _hints_of[record] = typing.get_type_hints(record)
    return _hints_of[record]


def _accepts(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_accepts(value, option) for option in get_args(hint))
    if origin is Literal:
        return value in get_args(hint) and isinstance(value, str)
    if origin is tuple:
        item = get_args(hint)[0]
        return isinstance(value, tuple) and all(
            _accepts(element, item) or (item is float and type(element) is int) for element in value
        )
    if hint is float:
        return isinstance(value, float) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return value is None if hint is type(None) else isinstance(value, origin or hint)


def _in_words(hint: Any, value: Any) -> str:
    options = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    words: list[str] = []
    for option in options:
        if get_origin(option) is Literal:
            choices = [str(choice) for choice in get_args(option)]
            near = difflib.get_close_matches(str(value), choices, n=1)
            words.append("one of " + ", ".join(map(repr, choices)) + (f" (did you mean {near[0]!r}?)" if near else ""))
        elif option is type(None):
            words.append("none")
        elif get_origin(option) is tuple:
            words.append("a list")
        else:
            words.append(
                {int: "a whole number", float: "a number", bool: "true or false"}.get(option, f"a {option.__name__}")
            )
    return " or ".join(words)


# Plain data


def plain_data(record: Any) -> dict[str, Any]:
    """A record's fields that are not at their default, nested records as dictionaries, tuples as lists."""

    def convert(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return plain_data(value)
        return [convert(item) for item in value] if isinstance(value, tuple) else value

    return {
        f.name: convert(getattr(record, f.name))
        for f in dataclasses.fields(record)
        if f.default is dataclasses.MISSING or getattr(record, f.name) != f.default
    }


def build(record: type, data: Any, path: str) -> Any:
    """A record from plain data; ``path`` is where it stands in the whole, for messages."""
    if not isinstance(data, Mapping):
        raise ArchitectureError(f"{path or 'architecture'}: {data!r} is not a table of fields.")
    refuse_unknown(data, record, path)
    hints = typing.get_type_hints(record)
    values = {key: _convert(hints[key], value, f"{path}.{key}" if path else key) for key, value in data.items()}
    missing = [f.name for f in dataclasses.fields(record) if f.default is dataclasses.MISSING and f.name not in values]
    if missing:
        raise ArchitectureError(
            f"{'.'.join(filter(None, [path, missing[0]]))}: this field has no default; give it a value."
        )
    return record(**values)


def _convert(hint: Any, value: Any, path: str) -> Any:
    """Plain data as the hint has it: tables become records, lists tuples, "none" None."""
    options = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if value == "none" and type(None) in options:
        return None
    for option in options:
        if dataclasses.is_dataclass(option) and isinstance(value, Mapping):
            return build(typing.cast(type, option), value, path)
        if get_origin(option) is tuple and isinstance(value, list):
            return tuple(_convert(get_args(option)[0], item, path) for item in value)
    return value


def refuse_unknown(data: Mapping[str, Any], record: type, path: str) -> None:
    """``ArchitectureError`` for a key that is no field, with the nearest that is."""
    names = [f.name for f in dataclasses.fields(record)]
    for key in data:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
            place = f" in {path}" if path else ""
            hint = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(names)}."
            raise ArchitectureError(f"{key}: there is no such field{place}; {hint}")


# The written forms


def to_json(data: dict[str, Any]) -> str:
    """Plain data as JSON."""
    return json.dumps(data, indent=2)


def from_json(text: str) -> Any:
    """Plain data from JSON; a key that stands twice is refused."""
    try:
        return json.loads(text, object_pairs_hook=_refuse_twice)
    except json.JSONDecodeError as error:
        raise ArchitectureError(f"not JSON: {error}") from None


def to_toml(data: dict[str, Any]) -> str:
    """Plain data as TOML."""
    import tomli_w

    return tomli_w.dumps(_none_as_word(data))


def from_toml(text: str) -> dict[str, Any]:
    """Plain data from TOML."""
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArchitectureError(f"not TOML: {error}") from None


def _none_as_word(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _none_as_word(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_none_as_word(item) for item in value]
    return "none" if value is None else value


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two values for one key leave it to chance which one counts."""
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ArchitectureError(f"{key}: this key stands twice; keep one.")
        seen[key] = value
    return seen
