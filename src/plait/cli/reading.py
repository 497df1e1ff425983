"""Standard input: UTF-8, whatever the locale says; anything else is refused in words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator


def everything() -> str:
    """All of standard input; nothing where it is closed."""
    return _utf8(sys.stdin.read) if sys.stdin else ""


def line() -> str:
    """The next line, with its newline; nothing at the end."""
    return _utf8(sys.stdin.readline) if sys.stdin else ""


def byte_lines() -> Iterator[str]:
    """The lines as they come, without their ends: a newline ends one, with the carriage return before it, and no other
    character does. ``ValueError`` names the first that is not UTF-8."""
    for number, line in enumerate(sys.stdin.buffer if sys.stdin else (), start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"standard input: line {number} is not UTF-8; convert it first, as with iconv.") from None
        yield text.removesuffix("\n").removesuffix("\r")


def _utf8(read: Callable[[], str]) -> str:
    try:
        text = read()
        text.encode("utf-8")  # a locale may let bytes through that are none
    except UnicodeError:
        raise ValueError("standard input: this text is not UTF-8; convert it first, as with iconv.") from None
    return text
