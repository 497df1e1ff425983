"""Options: what a command line puts over a recipe, as ``--section.key value``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from plait.training.places import SECTIONS, RecipeError, architecture_fields, hint_of, keys, meant


def read_options(options: Sequence[str]) -> dict[tuple[str, tuple[str, ...]], Any]:
    """``--section.key value`` options as ``{(section, key path): value}``; the value has its setting's type."""
    found: dict[tuple[str, tuple[str, ...]], Any] = {}
    for name, words in _named(options):
        section, _, rest = name.partition(".")
        key, *deeper = (word.replace("-", "_") for word in rest.split("."))
        if section not in SECTIONS or not rest:
            raise RecipeError(f"--{name}: there is no such option; {meant(name.rpartition('.')[2], None)}")
        known = key in keys(section)
        if not known and not (section == "model" and key in architecture_fields()):
            raise RecipeError(f"--{name}: there is no such setting; {meant(key, section)}")
        if known and deeper:
            raise RecipeError(f"--{name}: {section}.{key} is a single setting.")
        if (section, (key, *deeper)) in found:
            raise RecipeError(f"--{name}: this option stands twice; keep one.")
        found[section, (key, *deeper)] = _typed(name, words, hint_of(section, key) if known else None)
    return found


def _named(options: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each option's name, and the words after it."""
    name, words = None, list[str]()
    for word in options:
        if word.startswith("--"):
            if name is not None:
                yield name, words
            name, equals, value = word[2:].partition("=")
            words = [value] if equals else []
        elif name is None:
            raise RecipeError(f"{word}: a setting is given as --section.key value.")
        else:
            words.append(word)
    if name is not None:
        yield name, words


def _typed(name: str, words: list[str], hint: Any) -> Any:
    """Words of a command line as TOML would have them, text without quotes."""
    options = get_args(hint) or (hint,)
    if hint is bool and not words:
        return True
    if not words:
        raise RecipeError(f"--{name}: a value belongs after it.")
    if get_origin(hint) is tuple and not words[0].startswith("["):
        return words
    if len(words) > 1:
        raise RecipeError(f"--{name}: one value belongs after it, not {len(words)}: {' '.join(words)}.")
    (word,) = words
    if hint is not None and not {int, float, bool}.intersection(options) and get_origin(hint) is not tuple:
        return word
    try:
        return tomllib.loads(f"x = {word}")["x"]
    except tomllib.TOMLDecodeError:
        return float(word) if float in options and re.fullmatch(r"[+-]?\.\d+(e[+-]?\d+)?", word) else word
