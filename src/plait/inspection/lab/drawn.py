"""Drawn: figures as text, for a terminal and for a document: sparks, bars, shades and tables."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from plait.inspection.lab.experiment import number
from plait.inspection.lab.figures import Bar, Bars, Figure, Lines, Matrix, Table, Text
from plait.pages.words import Language, plain

SPARKS, SHADES = "▁▂▃▄▅▆▇█", " ·░▒▓█"
WIDE, POINTS = 40, 48  # characters of the longest bar, and of a line


def drawn(figure: Figure, language: Language = "en") -> str:
    """A figure under its title."""
    lines: Sequence[str]
    if isinstance(figure, Lines):
        lines = _lines(figure, language)
    elif isinstance(figure, Bars):
        lines = _bars(figure, language)
    elif isinstance(figure, Matrix):
        lines = _matrix(figure, language)
    else:
        lines = table(figure, language)
    return "\n".join([plain(figure.title, language), *(f"  {line}".rstrip() for line in lines)])


def _lines(figure: Lines, language: Language) -> list[str]:
    """A spark for each series, all on one scale."""
    values = [y for series in figure.series for _, y in series.points if math.isfinite(y)]
    share = _scale(values, figure.log)
    names = padded([plain(series.name, language) for series in figure.series])
    found: list[str] = []
    for name, series in zip(names, figure.series, strict=True):
        points = [y for _, y in series.points]
        step = max(1, math.ceil(len(points) / POINTS))
        spark = "".join(_step(SPARKS, share(y)) for y in points[::step])
        found.append(f"{name}  {spark}  {short(points[0])} … {short(points[-1])}" if points else f"{name}  –")
    ends = [x for series in figure.series for x, _ in series.points]
    across = plain(figure.across, language)
    return [*found, f"{' ' * columns(names[0])}  {across} {short(min(ends))} … {short(max(ends))}"] if ends else found


def _scale(values: Sequence[float], log: bool | None) -> Callable[[float], float]:
    """Where a value lies between the least and the largest, 0 to 1."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if log is None:
        log = low > 0 and high / low > 100
    if log and low > 0 and high > low:
        return lambda y: math.log(max(y, low) / low) / math.log(high / low)
    return lambda y: (y - low) / (high - low) if high > low else 0.0


def _step(signs: str, share: float) -> str:
    if not math.isfinite(share):
        return " "
    return signs[max(0, min(len(signs) - 1, round(share * (len(signs) - 1))))]


def _bars(figure: Bars, language: Language) -> list[str]:
    most = max((bar.value for bar in figure.bars), default=0.0) or 1.0
    names = padded([plain(bar.name, language) for bar in figure.bars])
    return [
        f"{name}  {'█' * max(0, round(WIDE * bar.value / most))} {ends(bar)}"
        for name, bar in zip(names, figure.bars, strict=True)
    ]


def ends(bar: Bar) -> str:
    """A bar's amount, and how far it went to either side."""
    if bar.low is None or bar.high is None:
        return short(bar.value)
    return f"{short(bar.value)} ({short(bar.low)} – {short(bar.high)})"


def _matrix(figure: Matrix, language: Language) -> list[str]:
    names = padded([plain(name, language) for name in figure.rows])
    if figure.digits is None:
        share = _scale([value for row in figure.values for value in row if math.isfinite(value)], log=False)
        return [
            f"{name}  {''.join(_step(SHADES, share(value)) * 2 for value in row)}"
            for name, row in zip(names, figure.values, strict=True)
        ]
    heads = [plain(name, language) for name in figure.columns]
    cells = [[cell(value, figure.digits) for value in row] for row in figure.values]
    return _grid(["", *heads], [[name, *row] for name, row in zip(names, cells, strict=True)])


def cell(value: float, digits: int) -> str:
    """A number of a matrix."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "∞"


def table(figure: Table, language: Language) -> list[str]:
    """Words and numbers under headings, in columns."""
    return _grid(_said(figure.columns, language), [_said(row, language) for row in figure.rows])


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side, the first to the left and the others to the right."""
    all_rows = [heads, *rows]
    widths = [max(columns(row[i]) for row in all_rows) for i in range(len(heads))]
    return [
        "  ".join(
            _fill(text, width, left=i == 0) for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in all_rows
    ]


def _said(texts: Iterable[Text], language: Language) -> list[str]:
    return [plain(text, language) for text in texts]


def padded(names: Sequence[str]) -> list[str]:
    """Names, all as wide as the widest."""
    width = max(map(columns, names), default=0)
    return [_fill(name, width, left=True) for name in names]


def _fill(text: str, width: int, *, left: bool) -> str:
    room = " " * (width - columns(text))
    return text + room if left else room + text


def columns(text: str) -> int:
    """How wide a terminal writes a text: two for a Chinese character."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def short(value: float) -> str:
    """A number beside a figure."""
    size = abs(value)
    if not math.isfinite(value):
        return "∞"
    if size >= 1000 or value == round(value):
        return f"{value:,.0f}"
    return number(value, 2) if size >= 1 else f"{value:#.3g}" if size >= 1e-9 else "0"
