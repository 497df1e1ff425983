"""Experiment: a claim, what live models measure of it, and figures, all as data.

trials    trainings, each by itself, so that they run side by side and are kept
run       from what the trials found to a Result; an experiment that trains nothing has no trials
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plait.inspection.lab.figures import Figure, Text
from plait.pages.words import Said, Words


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One measurement beside what is claimed.

    Args:
        id: the worked number's; W1 to W8 of claims that circulate and are wrong; empty where it has none.
        what: is measured.
        claimed, measured: as a reader reads them.
        holds: whether the one is the other.
        values: what was measured, as numbers.
    """

    id: str
    what: Text
    claimed: Text
    measured: Text
    holds: bool
    values: tuple[float, ...] = ()

    @property
    def circulates(self) -> bool:
        """Whether this is a claim that circulates and is wrong: refuted where it does not hold."""
        return self.id.startswith("W")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What an experiment found."""

    findings: tuple[Finding, ...]
    figures: tuple[Figure, ...] = ()

    def __getitem__(self, id: str) -> Finding:
        """The finding of a worked number, the first where it has several."""
        return next(finding for finding in self.findings if finding.id == id)

    def all(self, id: str) -> list[Finding]:
        """The findings of a worked number."""
        return [finding for finding in self.findings if finding.id == id]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training: ``make`` does it and gives plain data; it takes about so many ``seconds`` of one quiet core."""

    name: str
    make: Callable[[], Any]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """``words`` has its ``title``, its ``claim`` and, ``explained``, why that is so; ``run`` is given what each of its
    trials found, by name."""

    name: str
    words: Words
    run: Callable[[Mapping[str, Any]], Result]
    trials: tuple[Trial, ...] = ()

    @property
    def seconds(self) -> float:
        """Of one core, about."""
        return 1 + sum(trial.seconds for trial in self.trials)

    @property
    def title(self) -> Said:
        """Its name in words."""
        return self.words["title"]


def compared(id: str, what: Text, claimed: Sequence[float], measured: Sequence[float], *, digits: int = 4) -> Finding:
    """Numbers beside numbers; they hold where they are equal to so many digits behind the point."""
    near = 0.5 * 10.0**-digits * 1.001
    pairs = list(zip(claimed, measured, strict=False))
    return Finding(
        id=id,
        what=what,
        claimed=numbers(claimed, digits),
        measured=", ".join(_beside(a, b, digits, near) for a, b in pairs),
        holds=len(claimed) == len(measured) and all(abs(a - b) <= near for a, b in pairs),
        values=tuple(map(float, measured)),
    )


def _beside(claimed: float, measured: float, digits: int, near: float) -> str:
    """The measured number; with more digits where it rounds otherwise and is as near as can be."""
    said = number(measured, digits)
    same = said == number(claimed, digits) or abs(claimed - measured) > near
    return said if same else number(measured, digits + 2)


def numbers(values: Sequence[float], digits: int = 4) -> str:
    """Numbers in a row."""
    return ", ".join(number(value, digits) for value in values)


def number(value: float, digits: int = 4) -> str:
    """One number as a reader reads it: whole with thousands apart, or with so many digits behind the point; one that
    these would not show by the power of ten that it is below."""
    if 0 < abs(value) < 0.5 * 10.0**-digits:
        return f"< 1e{max(-9, math.floor(math.log10(abs(value))) + 1)}"
    if math.isfinite(value) and round(value, digits) == round(value):
        return f"{round(value):,}"
    return f"{value:,.{digits}f}"
