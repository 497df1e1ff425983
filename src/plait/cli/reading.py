"""Standard input: UTF-8, whatever the locale says; anything else is refused in words."""

from __future__ import annotations

import sys
from collections.abc import Callable


def everything() -> str:
    """All of standard input; nothing where it is closed."""
    return _utf8(sys.stdin.read) if sys.stdin else ""


def line() -> str:
    """The next line, with its newline; nothing at the end."""
    return _utf8(sys.stdin.readline) if sys.stdin else ""


def _utf8(read: Callable[[], str]) -> str:
    try:
        text = read()
        text.encode("utf-8")  # a locale may let bytes through that are none
    except UnicodeError:
        raise ValueError("standard input: this text is not UTF-8; convert it first, as with iconv.") from None
    return text
