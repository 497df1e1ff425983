"""The name that was probably meant by one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: object, names: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """The most similar of ``names``, in any case; ``None`` where less than ``cutoff`` of it is like ``word``."""
    by_lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(str(word).lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None
