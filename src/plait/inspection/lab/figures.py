"""Figures as data: what is drawn, and not how; a page, a terminal and a document each draw them their own way."""

from __future__ import annotations

from dataclasses import dataclass

from plait.pages.words import Said

Text = str | Said


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line: its name, and its points from left to right."""

    name: Text
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines over a common axis, whose unit is ``across``; ``log``: by powers of ten, ``None``: where they span many."""

    title: Text
    across: Text
    series: tuple[Series, ...]
    log: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar; ``low`` and ``high`` are how far it differed from seed to seed, where it was measured several times."""

    name: Text
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Amounts side by side."""

    title: Text
    bars: tuple[Bar, ...]


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A field of numbers with names for its rows and columns; ``digits`` after the point, ``None``: only shades."""

    title: Text
    rows: tuple[Text, ...]
    columns: tuple[Text, ...]
    values: tuple[tuple[float, ...], ...]
    digits: int | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """Words and numbers under headings."""

    title: Text
    columns: tuple[Text, ...]
    rows: tuple[tuple[Text, ...], ...]


Figure = Lines | Bars | Matrix | Table
