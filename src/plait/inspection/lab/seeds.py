"""Seeds: the same measurement several times over, as its mean and how far it goes to either side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The mean of some measurements, the least and the largest."""

    mean: float
    low: float
    high: float

    def said(self, digits: int = 3) -> str:
        """As a reader reads it: 2.812 (2.790 to 2.834)."""
        return f"{self.mean:.{digits}f} ({self.low:.{digits}f} – {self.high:.{digits}f})"


def spread(values: Sequence[float]) -> Spread:
    """Of one measurement for each seed."""
    return Spread(mean=sum(values) / len(values), low=min(values), high=max(values))
