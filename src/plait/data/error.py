"""DataError: data that cannot be read or dealt out as asked."""

from __future__ import annotations


class DataError(ValueError):
    """The message says what is wrong, where, and what would be right."""
