"""Figures: those of an experiment as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence

from plait.inspection.lab.drawn import cell, ends
from plait.inspection.lab.figures import Bars, Figure, Lines, Matrix, Table, Text
from plait.pages import COLOURS, Bar, Line, bars, chart, in_html, shades


def drawn(figure: Figure) -> str:
    """A figure."""
    if isinstance(figure, Lines):
        return _chart(figure)
    if isinstance(figure, Bars):
        amounts = [Bar(name=b.name, value=b.value, said=ends(b), low=b.low, high=b.high) for b in figure.bars]
        return bars(figure.title, amounts)
    return _shades(figure) if isinstance(figure, Matrix) else table(figure)


def _chart(figure: Lines) -> str:
    lines = [
        Line(name=series.name, points=series.points, colour=colour, marked=len(series.points) < 10)
        for series, colour in zip(figure.series, COLOURS, strict=False)
    ]
    return chart(figure.title, lines, unit=figure.across, log=figure.log)


def _shades(figure: Matrix) -> str:
    digits = figure.digits
    texts = None if digits is None else [[cell(value, digits) for value in row] for row in figure.values]
    finite = [value for row in figure.values for value in row if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    near = low < high < 2 * low  # else white is nothing
    return shades(figure.title, figure.columns, figure.rows, figure.values, texts, least=low if near else min(low, 0.0))


def table(figure: Table) -> str:
    """Words and numbers under headings."""
    return (
        f'<figure class="wide"><figcaption>{in_html(figure.title)}</figcaption>'
        f'<div class="across-scroll" tabindex="0">{rows_of(figure.columns, figure.rows)}</div></figure>'
    )


def rows_of(heads: Sequence[Text], rows: Sequence[Sequence[Text]]) -> str:
    """A table: the first column words, the others numbers."""
    head = "".join(f"<th{_side(i)}>{in_html(name)}</th>" for i, name in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{_side(i)}>{in_html(text)}</td>" for i, text in enumerate(row)) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _side(column: int) -> str:
    return ' class="number"' if column else ""
