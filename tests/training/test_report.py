"""The report: one page with everything in it, whatever a run measured; numbers land where their axes say."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from plait.account import account
from plait.architecture import Architecture
from plait.pages.charts import HIGH, POINTS, WIDE, Line, Scale, chart, heat, number, scale_of
from plait.training.report import report

ARCHITECTURE = Architecture(vocab_size=20, d_model=16, n_heads=2, d_ff=32, n_decoder_layers=2, tied=True)
RECIPE = '[model]\nd_model = 16\n[run]\nout = "</pre><script>"\n'
VOID = {"meta", "path", "br", "link", "input"}


class Balance(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def lines(steps: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        values = {"loss": 3.0 / step, "targets": 10, "lr": 1e-3, "gradient_norm": 1.0, "seconds": 0.5}
        found.append({"kind": "step", "step": step, **values})
    found.append({"kind": "evaluation", "step": steps, "loss": 1.25, "bleu": None, "accuracy": 0.5, "best": True})
    layers = {"gradients": {"embedding": 0.5, "decoder.layers.0": None}, "activations": {"embedding": 1.0}}
    found.append({"kind": "layers", "step": steps, **layers})
    found.append({"kind": "samples", "step": steps, "samples": [{"source": "<b>&", "written": "ich 爱 你"}]})
    return found


def page(found: list[dict[str, Any]]) -> str:
    return report(found, title="a <run>", architecture=ARCHITECTURE, recipe=RECIPE, facts={"padding": 0.031})


@pytest.mark.parametrize("found", [[], lines(1), lines(3), lines(3 * POINTS)], ids=["nothing", "one", "few", "many"])
def test_the_page_is_whole_and_asks_nothing_of_the_network(found: list[dict[str, Any]]):
    written = page(found)
    balance = Balance()
    balance.feed(written)
    assert balance.open == []
    assert not [name for name, _ in balance.attributes if name in ("src", "href", "xlink:href")]
    assert not re.search(r"https?:|@import|url\(|nan\b", written.replace("http-equiv", ""))


def test_what_a_run_says_is_text_and_no_markup():
    written = page(lines(3))
    assert "a &lt;run&gt;" in written and "&lt;b&gt;&amp;" in written and "ich 爱 你" in written
    assert "</pre><script>" not in written


def test_the_page_has_the_numbers():
    written = page(lines(4))
    assert f"{account(ARCHITECTURE).parameters:,} parameters" in written
    assert "1.2500" in written and "50.00 %" in written  # the evaluation
    assert ">20</dd>" in written  # 40 targets in 2 seconds
    assert "decoder.layers.0" in written and "0.031" in written


def test_a_long_line_is_gathered_with_its_extremes():
    points = [(float(step), 5.0 if step == 777 else 1.0) for step in range(10 * POINTS)]
    drawn = chart("loss", [Line(name="loss", points=points)])
    up = scale_of((y for _, y in points), log=None)
    assert f" {HIGH * (1 - up.share(5.0)):.1f}" in drawn  # the one high point
    assert drawn.count("L") < 4 * POINTS


def test_points_lie_where_the_axis_says():
    drawn = chart("x", [Line(name="x", points=[(0.0, 1.0), (10.0, 3.0)])])
    up, across = scale_of([1.0, 3.0]), Scale(0.0, 10.4)
    first, second = re.findall(r"([\d.]+) ([\d.]+)", re.findall(r'class="line one" d="M([^"]*)"', drawn)[0])
    assert (float(first[0]), float(second[0])) == (0.0, pytest.approx(WIDE * across.share(10.0), abs=0.1))
    assert float(first[1]) == pytest.approx(HIGH * (1 - up.share(1.0)), abs=0.1)
    assert float(first[1]) > float(second[1])  # up is up


def test_a_line_has_a_gap_where_there_is_no_number():
    drawn = chart("x", [Line(name="x", points=[(0, 1.0), (1, 2.0), (2, math.nan), (3, 2.0), (4, 1.0)])])
    assert re.findall(r'class="line one" d="([^"]*)"', drawn)[0].count("M") == 2


@pytest.mark.parametrize(
    ("low", "high", "log"), [(0.0, 1.0, False), (2.1, 9.7, False), (1e-5, 3e-3, False), (1e-3, 1e3, True)]
)
def test_ticks_are_round_few_and_inside(low: float, high: float, log: bool):
    ticks = Scale(low, high, log).ticks()
    assert 3 <= len(ticks) <= 7
    assert all(low - 1e-12 <= tick <= high + 1e-12 and len(number(tick)) <= 6 for tick in ticks)


def test_one_value_alone_has_an_axis():
    assert "NaN" not in chart("x", [Line(name="x", points=[(5.0, 0.0)])]) and scale_of([0.0]).high > 0
    assert chart("x", []) == chart("x", [Line(name="x", points=[(1, math.nan)])]) == ""


def test_heat_is_stronger_where_values_are_larger():
    drawn = heat("x", [1, 2], {"a": [0.01, 1.0], "b": [0.1, math.nan]})
    strengths = [float(value) for value in re.findall(r'opacity="([\d.]+)"', drawn)]
    assert strengths == [0.06, 1.0, 0.53]
    assert heat("x", [1], {"a": [math.nan]}) == ""


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (1500, "1,500"), (20000, "20k"), (3e6, "3M"), (2.5, "2.5"), (1e-5, "1e-5")]
)
def test_numbers_on_axes(value: float, said: str):
    assert number(value) == said
