"""Recipe files: TOML with a section for each record of settings, and what the command line puts over it.

What is unknown, mistyped, out of bounds, said twice or said for nothing is refused with its place and the nearest that
is meant. Command line before file before default.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from plait.records import ArchitectureError, check_types, to_toml
from plait.training.options import read_options
from plait.training.places import EXTRA, SECTIONS, RecipeError, architecture_fields, hint_of, keys, meant
from plait.training.settings import Recipe
from plait.training.together import check, idle, refuse_idle, without_idle


def read_recipe(path: Path, options: Sequence[str] = ()) -> Recipe:
    """The recipe in a file, with ``--section.key value`` options over it; ``RecipeError`` names file and key."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecipeError(f"{path}: there is no such recipe.") from None
    except UnicodeDecodeError:
        raise RecipeError(f"{path}: it is not UTF-8, and so no recipe.") from None
    try:
        data = parse(text)
        refuse_idle(build(data), data)  # a mistake in the file is the file's, whatever is put over it
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from None
    said = _nested(read_options(options))
    recipe = build(_over(said, data))
    refuse_idle(recipe, said)
    return check(without_idle(recipe))


def _nested(options: Mapping[tuple[str, tuple[str, ...]], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (section, path), value in options.items():
        table = found.setdefault(section, {})
        for name in path[:-1]:
            table = table.setdefault(name, {})
        table[path[-1]] = value
    return found


def _over(upper: Any, lower: Any) -> Any:
    """Tables merged, key by key; of two values the upper."""
    if not isinstance(upper, Mapping) or not isinstance(lower, Mapping):
        return upper
    return {**lower, **{key: _over(value, lower[key]) if key in lower else value for key, value in upper.items()}}


def parse(text: str) -> dict[str, Any]:
    """Plain data from TOML; a key that stands twice is named."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        if place and re.search("overwrite|twice|redefine|mutate", str(error)):
            line = text.splitlines()[int(place[1]) - 1].strip()
            key = line.partition("=")[0].strip() if "=" in line else line
            raise RecipeError(f"{key}: this key stands twice (line {place[1]}); keep one.") from None
        raise RecipeError(f"this is not TOML: {error}.") from None


def build(data: Mapping[str, Any]) -> Recipe:
    """A recipe from plain data: every section and key known, every value of its setting's type and in its bounds."""
    for name, values in data.items():
        if name not in SECTIONS:
            raise RecipeError(f"{name}: there is no section of that name; {meant(name, None)}")
        if not isinstance(values, Mapping):
            raise RecipeError(f"{name}: a section [{name}] of settings belongs here, not {values!r}.")
    return Recipe(**{name: _section(name, data.get(name, {})) for name in SECTIONS})


def to_text(recipe: Recipe) -> str:
    """The whole recipe as TOML, defaults too; it reads back equal."""
    return to_toml(plain(recipe))


def plain(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The recipe's settings by section and key, defaults too, without those that other settings leave idle."""
    unread = {place for place, *_ in idle(recipe)}
    found: dict[str, dict[str, Any]] = {}
    for name in SECTIONS:
        record = getattr(recipe, name)
        table = {key: getattr(record, f.name) for key, f in keys(name).items() if f"{name}.{key}" not in unread}
        found[name] = {key: list(value) if isinstance(value, tuple) else value for key, value in table.items()}
    found["model"] |= recipe.model.overrides
    return found


# One section


def _section(name: str, values: Mapping[str, Any]) -> Any:
    fields = keys(name)
    own = architecture_fields() if name == "model" else []
    for key in values:
        if key not in fields and key not in own:
            raise RecipeError(f"{name}.{key}: there is no such setting; {meant(key, name)}")
    given = {fields[key].name: _value(name, key, value) for key, value in values.items() if key in fields}
    extra = {key: value for key, value in values.items() if key not in fields}
    record = SECTIONS[name](**given, **({EXTRA: extra} if extra else {}))
    try:
        check_types(record, name)
    except ArchitectureError as error:
        raise RecipeError(str(error)) from None
    for key, field in fields.items():
        _check_bounds(f"{name}.{key}", getattr(record, field.name), field.metadata)
    return record


def _value(section: str, key: str, value: Any) -> Any:
    """A value as its setting has it: "none" is None or an empty list; a list a tuple; one text, where a list belongs, a
    list of it."""
    hint = hint_of(section, key)
    options = get_args(hint) or (hint,)
    if value == "none" and type(None) in options:
        return None
    if value in ("none", ["none"]) and get_origin(hint) is tuple:
        return ()
    if isinstance(value, list):
        return tuple(value)
    return (value,) if get_origin(hint) is tuple and isinstance(value, str) else value


BOUNDS = {  # of a field's metadata: what is wrong, and in words
    "above": (lambda value, bound: value <= bound, "more than"),
    "least": (lambda value, bound: value < bound, "at least"),
    "below": (lambda value, bound: value >= bound, "less than"),
    "most": (lambda value, bound: value > bound, "at most"),
}


def _check_bounds(place: str, value: Any, metadata: Mapping[str, Any]) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        bounds = {name: metadata[name] for name in BOUNDS if name in metadata}
        if any(BOUNDS[name][0](value, bound) for name, bound in bounds.items()):
            words = " and ".join(f"{BOUNDS[name][1]} {bound}" for name, bound in bounds.items())
            raise RecipeError(f"{place}: {value} is out of bounds; it must be {words}.")
