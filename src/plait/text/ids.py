"""What may be the id of a token: a whole number that some vocabulary could reach."""

from __future__ import annotations

from typing import Any, TypeGuard

MOST_IDS = 10_000_000  # ten times the largest vocabularies there are


def is_id(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number from 0 to below ``MOST_IDS``."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_IDS
