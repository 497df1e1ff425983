"""Control strings in a user's text stay text: they are marked before a template renders, and told apart after.

A template may trim what it is given, split it or join it to other text, so a mark is one private character that occurs
nowhere in the user's values: one on either side of each control string in them, and one after a value's end that begins
a control string, lest what follows complete it. What is rendered unmarked was written by the template. Not covered is a
template that takes characters out of the middle of a text, and so spells what was not there: marks wherever a control
string may begin, at every ``<``, would hide from templates the words that they look for (``</think>``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

T = TypeVar("T")
Marks = tuple[str, str]

_PRIVATE = (0xE000, 0xF8FF)  # the private use area: characters that mean nothing


def mark_control(values: T, control: Iterable[str]) -> tuple[Marks | None, T]:
    """``values`` with every control string in every string of it marked, and the marks; None where there was none."""
    strings = list(_strings(values))
    # In any case: a template may lower what it is given.
    pattern = re.compile(f"({_any_of(control).pattern})|(?:{_beginning_of(control)})(?=\\s*\\Z)", re.IGNORECASE)
    if not any(pattern.search(string) for string in strings):
        return None, values
    taken = set().union(*strings)
    start, end = [character for code in range(*_PRIVATE) if (character := chr(code)) not in taken][:2]

    def marked(match: re.Match[str]) -> str:
        return f"{start if match[1] else ''}{match[0]}{end}"

    return (start, end), _map_strings(values, lambda string: pattern.sub(marked, string))


def control_parts(text: str, control: Mapping[str, int], marks: Marks) -> list[str | int]:
    """Rendered text as plain text, marked strings included and marks gone, and the control ids between."""
    start, end = marks
    found = re.compile(f"{start}({_any_of(control).pattern}){end}|({_any_of(control).pattern})|[{start}{end}]")
    parts: list[str | int] = []
    plain: list[str] = []
    position = 0
    for match in found.finditer(text):
        plain += [text[position : match.start()], match[1] or ""]
        position = match.end()
        if match[2] is not None:
            parts += [*_joined(plain), control[match[2]]]
            plain = []
    return [*parts, *_joined([*plain, text[position:]])]


def split_control(text: str, control: Mapping[str, int]) -> list[str | int]:
    """A raw prompt as plain text and the control ids that it spells."""
    parts: list[str | int] = []
    for index, piece in enumerate(re.split(f"({_any_of(control).pattern})", text)):
        parts += [control[piece]] if index % 2 else _joined([piece])
    return parts


def _joined(pieces: Sequence[str]) -> list[str]:
    text = "".join(pieces)
    return [text] if text else []


def _any_of(control: Iterable[str]) -> re.Pattern[str]:
    # The longest first: a token goes before those that it contains.
    strings = sorted((string for string in control if string), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, strings)) or "(?!)")


def _beginning_of(control: Iterable[str]) -> str:
    beginnings = {string[:length] for string in control for length in range(1, len(string))}
    return "|".join(map(re.escape, sorted(beginnings, key=len, reverse=True))) or "(?!)"


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[Any]", value):
            yield from _strings(item)


def _map_strings(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_map_strings(key, change): _map_strings(item, change) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_map_strings(item, change) for item in cast("Sequence[Any]", value)]
    return value
