"""Charts as inline SVG that stretches to its box, labelled in HTML, so that text keeps its size.

Colours are CSS variables of the page (base.css), light and dark. Every chart stands without script; with it a pointer
reads values off (plane.js).
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from plait.pages.words import LANGUAGES, Said, in_html, plain

WIDE, HIGH = 1000, 400  # the plane's units
POINTS = 400  # of a line; more are gathered in buckets, drawn as their mean over a band from lowest to highest

Point = tuple[float, float]
Colour = Literal["one", "two", "three", "four", "five", "six"]
COLOURS: tuple[Colour, ...] = get_args(Colour)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A series: its name, its points from left to right, its colour's class, and whether the points are marked."""

    name: str | Said
    points: Sequence[Point]
    colour: Colour = "one"
    marked: bool = False


@dataclass(frozen=True)
class Scale:
    """Values on an axis: from ``low`` to ``high``, evenly or by powers of ten."""

    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies, 0 at the low end and 1 at the high one."""
        if self.log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values to label: three to six of them."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            if last - first >= 1:
                step = max(1, round((last - first) / 4))
                return [10.0**n for n in range(first, last + 1, step)]
        step = _round_step((self.high - self.low) / 4)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def scale_of(values: Iterable[float], *, log: bool | None = None, from_zero: bool = False) -> Scale:
    """An axis that holds the values; by powers of ten where they span more than two of them, unless said."""
    kept = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(kept), max(kept)
    if log is None:
        log = low > 0 and high / low > 100
    if log:
        return Scale(low, high if high > low else low * 10, True)
    if from_zero:
        low = min(low, 0.0)
    if high == low:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    margin = 0.04 * (high - low)
    return Scale(low if from_zero else low - margin, high + margin)


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if step <= m * power * 1.0001)


def chart(
    title: str | Said,
    lines: Sequence[Line],
    *,
    unit: str | Said = "step",
    log: bool | None = None,
    from_zero: bool = False,
    tall: bool = False,
) -> str:
    """A figure of lines over steps, or another ``unit``; empty text where no line has a point."""
    lines = [line for line in lines if any(math.isfinite(y) for _, y in line.points)]
    if not lines:
        return ""
    across = scale_of((x for line in lines for x, _ in line.points), log=False)
    across = Scale(min(x for line in lines for x, _ in line.points), across.high)
    up = scale_of((y for line in lines for _, y in line.points), log=log, from_zero=from_zero)
    drawn = "".join(_draw(line, across, up) for line in lines)
    grid = "".join(f'<path class="grid" d="M0 {_y(tick, up)}H{WIDE}"/>' for tick in up.ticks())
    data = json.dumps(
        [{"name": _both(line.name), "colour": line.colour, "points": _rounded(line.points)} for line in lines],
        ensure_ascii=False,
    )
    measure = html.escape(json.dumps(_both(unit), ensure_ascii=False), quote=True)
    legend = "".join(f'<span class="key {line.colour}">{in_html(line.name)}</span>' for line in lines)
    across_words = f'data-across="{across.low} {across.high}" data-unit="{measure}"'
    return (
        f'<figure class="chart{" tall" if tall else ""}"><figcaption>{in_html(title)}'
        f"{f'<span class=legend>{legend}</span>' if len(lines) > 1 else ''}</figcaption>"
        f'<div class="plane" {across_words} data-lines="{html.escape(data, quote=True)}">{_labels(up, "up")}'
        f'<svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(plain(title))}">{grid}{drawn}</svg>'
        f"{_labels(across, 'across', unit)}<output></output></div></figure>"
    )


def _both(text: str | Said) -> Any:
    """A text for a script: what is said in both languages as an object of them."""
    return {name: plain(text, name) for name in LANGUAGES} if isinstance(text, Said) else text


def _labels(scale: Scale, axis: Literal["up", "across"], unit: str | Said = "") -> str:
    side = "bottom" if axis == "up" else "left"
    marks = "".join(
        f'<span style="{side}:{100 * scale.share(tick):.2f}%">{number(tick)}</span>' for tick in scale.ticks()
    )
    measure = f"<b>{in_html(unit)}</b>" if unit else ""
    return f'<div class="{axis}" aria-hidden="true">{measure}{marks}</div>'


def _draw(line: Line, across: Scale, up: Scale) -> str:
    runs = _runs(line.points)
    if sum(map(len, runs)) > POINTS:
        means, band = _gathered([point for run in runs for point in run])
        edge = "L".join(f"{_x(x, across)} {_y(y, up)}" for x, y in band)
        return f'<path class="band {line.colour}" d="M{edge}Z"/>' + _path([means], line.colour, across, up)
    dots = "".join(f"M{_x(x, across)} {_y(y, up)}h0" for run in runs for x, y in run) if line.marked else ""
    single = "".join(f"M{_x(x, across)} {_y(y, up)}h0" for run in runs if len(run) == 1 for x, y in run)
    mark = f'<path class="dots {line.colour}" d="{dots or single}"/>' if dots or single else ""
    return _path(runs, line.colour, across, up) + mark


def _path(runs: Sequence[Sequence[Point]], colour: str, across: Scale, up: Scale) -> str:
    d = "".join("M" + "L".join(f"{_x(x, across)} {_y(y, up)}" for x, y in run) for run in runs if run)
    return f'<path class="line {colour}" d="{d}"/>'


def _runs(points: Sequence[Point]) -> list[list[Point]]:
    """The points between those that are no number: a line has a gap there."""
    runs: list[list[Point]] = [[]]
    for x, y in points:
        if math.isfinite(y):
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _gathered(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """The means of ``POINTS`` buckets, and the outline of their lowest and highest."""
    edges = [round(i * len(points) / POINTS) for i in range(POINTS + 1)]
    buckets = [points[a:b] for a, b in pairwise(edges)]
    middle = [sum(x for x, _ in bucket) / len(bucket) for bucket in buckets]
    means = [(x, sum(y for _, y in bucket) / len(bucket)) for x, bucket in zip(middle, buckets, strict=True)]
    top = [(x, max(y for _, y in bucket)) for x, bucket in zip(middle, buckets, strict=True)]
    bottom = [(x, min(y for _, y in bucket)) for x, bucket in zip(middle, buckets, strict=True)]
    return means, [*top, *reversed(bottom)]


def _rounded(points: Sequence[Point]) -> list[tuple[float, float]]:
    """At most ``POINTS`` of them, for the pointer."""
    step = max(1, math.ceil(len(points) / POINTS))
    kept = [*points[::step], *([points[-1]] if (len(points) - 1) % step else [])]
    return [(x, float(f"{y:.5g}")) for x, y in kept if math.isfinite(y)]


def heat(
    title: str | Said, columns: Sequence[float], rows: Mapping[str, Sequence[float]], *, unit: str = "step"
) -> str:
    """A field of values, a row for each name and a column for each step, or another ``unit``; the stronger the colour,
    the larger."""
    values = [value for row in rows.values() for value in row if math.isfinite(value) and value > 0]
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = Scale(low, high if high > low else low * 10, True)
    wide, high_units = WIDE / len(columns), HIGH / len(rows)
    cells = []
    for i, (name, row) in enumerate(rows.items()):
        for j, value in enumerate(row):
            if math.isfinite(value):
                strength = 0.06 + 0.94 * scale.share(value) if value > 0 else 0
                cells.append(
                    f'<rect x="{j * wide:.1f}" y="{i * high_units:.1f}" width="{wide + 0.2:.1f}" '
                    f'height="{high_units + 0.2:.1f}" opacity="{strength:.2f}">'
                    f"<title>{html.escape(name)}, {unit} {number(columns[j])}: {value:.4g}</title></rect>"
                )
    names = "".join(f"<span>{html.escape(name)}</span>" for name in rows)
    ends = f"<span>{unit} {number(columns[0])}</span><span>{number(columns[-1])}</span>"
    ramp = f'<span class="ramp"><i>{low:.2g}</i><b></b><i>{high:.2g}</i></span>'
    return (
        f'<figure class="heat" style="--rows:{len(rows)}"><figcaption>{in_html(title)}{ramp}</figcaption>'
        f'<div class="field"><div class="names">{names}</div><svg viewBox="0 0 {WIDE} {HIGH}" '
        f'preserveAspectRatio="none" role="img" aria-label="{html.escape(plain(title))}">{"".join(cells)}</svg>'
        f'<div class="ends">{ends}</div></div></figure>'
    )


def number(value: float) -> str:
    """A number on an axis: 0, 250, 1,500, 20k, 3M, 1e-05."""
    size = abs(value)
    if size >= 1e12 or 0 < size < 1e-3:
        return f"{value:.3g}".replace("e-0", "e-")
    for least, unit, word in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= least:
            return f"{value / unit:g}{word}"
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"


def _x(value: float, scale: Scale) -> str:
    return f"{WIDE * scale.share(value):.1f}"


def _y(value: float, scale: Scale) -> str:
    return f"{HIGH * (1 - scale.share(value)):.1f}"
