"""Bars: amounts side by side from one line on, each with how far it went to either side where that is known."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from plait.pages.words import Said, in_html


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An amount from 0 up, and ``said`` beside it; ``low`` and ``high``: the least and the largest of its kind."""

    name: str | Said
    value: float
    said: str
    low: float | None = None
    high: float | None = None


def bars(title: str | Said, amounts: Sequence[Bar]) -> str:
    """A figure; empty text where there is no amount."""
    if not amounts:
        return ""
    most = max(max(bar.value, bar.high or 0.0) for bar in amounts) or 1.0
    rows = "".join(
        f'<li><span class="name">{in_html(bar.name)}</span><span class="track" aria-hidden="true">'
        f'<i style="width:{_percent(bar.value, most)}"></i>{_reach(bar, most)}</span>'
        f'<span class="amount">{html.escape(bar.said)}</span></li>'
        for bar in amounts
    )
    return f'<figure class="bars"><figcaption>{in_html(title)}</figcaption><ul>{rows}</ul></figure>'


def _reach(bar: Bar, most: float) -> str:
    if bar.low is None or bar.high is None:
        return ""
    return f'<b style="left:{_percent(bar.low, most)};width:{_percent(bar.high - bar.low, most)}"></b>'


def _percent(value: float, most: float) -> str:
    return f"{100 * max(0.0, value) / most:.2f}%"
