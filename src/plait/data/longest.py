"""Longest: what becomes of a sample with more tokens than a row may have. It is counted in any case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from plait.data.lines import Tally

Longest = Literal["drop", "cut"]


def fit(
    rows: Sequence[Sequence[int]], length: int, longest: Longest, tally: Tally, *, end: int = 1
) -> list[Sequence[int]] | None:
    """The rows of one sample, each with at most ``length`` tokens, all of them counted; None to leave it out.

    Args:
        rows: one, or the two sides of a pair.
        length: the most tokens of each.
        longest: ``"drop"`` leaves the whole sample out; ``"cut"`` shortens what is too long.
        tally: counts it.
        end: how many tokens of a row's end are kept when the rest is cut: those that say where it ends.
    """
    if all(len(row) <= length for row in rows):
        return list(rows)
    tally.over_long += 1
    if longest == "drop":
        return None
    tally.cut += 1
    return [row if len(row) <= length else [*row[: length - end], *row[len(row) - end :]] for row in rows]
