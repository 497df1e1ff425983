"""Defaults for commands from a TOML file: every key is known, every value has its option's type, or it is refused.

    [generate]
    max_new_tokens = 64
    temperature = 0.7

What stands on the command line wins over the file.
"""

from __future__ import annotations

import tomllib
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from plait.words import nearest

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.config import Dict


def read(path: Path, app: App) -> Dict:
    """The file's settings for ``app``'s commands; ``ValueError`` names the file, the section and the key."""
    from cyclopts.config import Dict

    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: this is not TOML: {error}.") from None
    try:
        _check_sections(settings, app, ())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return Dict(settings, source=str(path))


def _check_sections(settings: Mapping[str, Any], app: App, path: tuple[str, ...]) -> None:
    """Every key at this level is a command, and holds a table of its options or of its own commands."""
    commands = [name for name in app if not name.startswith("-")]
    for key, value in settings.items():
        where = (*path, key)
        if key not in commands:
            raise ValueError(f"{'.'.join(where)}: there is no command of that name; {_nearest(key, commands)}")
        if not isinstance(value, Mapping):
            raise ValueError(
                f"{'.'.join(where)}: a section [{'.'.join(where)}] of options belongs here, not {value!r}."
            )
        command = app[key]
        if command.default_command is None:
            _check_sections(value, command, where)
        else:
            _check_options(value, command, where)


def _check_options(settings: Mapping[str, Any], command: App, path: tuple[str, ...]) -> None:
    options = {
        name.removeprefix("--").replace("-", "_"): argument
        for argument in command.assemble_argument_collection(parse_docstring=False)
        for name in argument.names
        if name.startswith("--")
    }
    for key, value in settings.items():
        where = ".".join((*path, key))
        if key.replace("-", "_") not in options:
            raise ValueError(f"{where}: there is no such option; {_nearest(key, options)}")
        hint = options[key.replace("-", "_")].hint
        if not _fits(value, hint):
            raise ValueError(f"{where}: {value!r} is not {_in_words(hint)}.")


def _nearest(key: str, names: Iterable[str]) -> str:
    near = nearest(key.replace("-", "_"), names)
    return f"did you mean {near!r}?" if near else f"there are {', '.join(names)}."


def _fits(value: Any, hint: Any) -> bool:
    """Whether TOML's typed value is what an option's annotation asks for."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin in (tuple, list):
        return isinstance(value, list) and all(_fits(item, get_args(hint)[0]) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is Path:
        return isinstance(value, str)
    return isinstance(value, hint) and hint is not type(None)


def _in_words(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(option) for option in get_args(hint) if option is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if origin in (tuple, list):
        return f"a list, each item {_in_words(get_args(hint)[0])}"
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(hint, "text")
