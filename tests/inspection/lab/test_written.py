"""What is written: figures as text, and the document, of which the part that trains nothing stands in docs as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.inspection.lab.drawn import columns, drawn
from plait.inspection.lab.experiments import EXPERIMENTS, experiment
from plait.inspection.lab.figures import Bar, Bars, Lines, Matrix, Series, Table
from plait.inspection.lab.written import document, section
from plait.pages.words import LANGUAGES, Said
from tests.inspection.lab.pretended import results
from tests.inspection.lab.results import FAST, result

pytestmark = pytest.mark.slow  # experiments are run

DOCUMENT = Path(__file__).parents[3] / "docs" / "worked-numbers.md"
NUMBERS = [f"{group}{i}" for group, n in (("N", 4), ("D", 3), ("P", 6), ("A", 9), ("F", 3)) for i in range(1, n + 1)]


def whole(language="en") -> str:
    found = results()
    return document([(one, found[one.name]) for one in EXPERIMENTS], language)


needs_document = pytest.mark.skipif(not DOCUMENT.exists(), reason="plait lab --all has not written it yet")


@needs_document
@pytest.mark.parametrize("name", FAST)
def test_the_document_in_docs_has_what_is_measured_now(name: str):
    assert section(experiment(name), result(name)) in DOCUMENT.read_text(encoding="utf-8")


@needs_document
def test_the_document_in_docs_has_every_number_and_every_claim_and_all_hold():
    lines = [line.split(" | ") for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [(cells[0].removeprefix("| "), " | ".join(cells)) for cells in lines]
    wrong = [f"W{i}" for i in range(1, 9)]
    assert {*NUMBERS, *wrong} <= {id for id, _ in rows}
    for id, row in rows:
        assert id not in NUMBERS or ("| holds |" in row and "does not hold here" not in row), row
        assert id not in wrong or ("| refuted |" in row and "not refuted here" not in row), row


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_document_has_a_row_for_each_number_and_a_section_for_each_experiment(language: str):
    text = whole(language)
    lines = text.splitlines()
    for id in (*NUMBERS, *(f"W{i}" for i in range(1, 9))):
        assert any(line.startswith(f"| {id} | ") for line in lines), id
    for one in EXPERIMENTS:
        assert f"## `{one.name}`: {one.title.within(language)}" in lines  # type: ignore[arg-type]
    for start, line in enumerate(lines):  # every table is whole
        if line.startswith("|---"):
            widths = {row.replace(r"\|", "").count("|") for row in lines[start - 1 : start + 2]}
            assert len(widths) == 1, lines[start - 1]
    assert text.count("```text") * 2 == text.count("```")


def test_lines_share_one_scale():
    series = (Series(name="up", points=((0, 0.0), (1, 4.0), (2, 8.0))), Series(name="low", points=((0, 0.0), (2, 0.0))))
    text = drawn(Lines(title="t", across="step", series=series, log=False))
    assert text.splitlines() == ["t", "  up   ▁▅█  0 … 8", "  low  ▁▁  0 … 0", "       step 0 … 2"]


def test_bars_are_as_long_as_they_are_large():
    bars = (Bar(name="a", value=10.0), Bar(name="b", value=5.0, low=4.0, high=6.5))
    _, first, second = drawn(Bars(title="t", bars=bars)).splitlines()
    assert first.count("█") == 2 * second.count("█") == 40
    assert second.endswith("5 (4 – 6.50)")


def test_a_matrix_in_numbers_and_in_shades():
    rows, names = ((0.0, 1.0), (0.5, float("inf"))), ("x", "y")
    numbers = drawn(Matrix(title="t", rows=names, columns=names, values=rows, digits=1)).splitlines()
    assert numbers == ["t", "       x    y", "  x  0.0  1.0", "  y  0.5    ∞"]
    shades = drawn(Matrix(title="t", rows=names, columns=names, values=rows)).splitlines()
    assert shades == ["t", "  x    ██", "  y  ░░"]


def test_chinese_takes_two_columns():
    assert columns("残差 x") == 6
    name = Said("residual", "残差")
    table = Table(title="t", columns=("", name), rows=(("a", "123456"), (name, "1")))
    _, head, first, second = drawn(table, "zh").splitlines()
    assert columns(head) == columns(first) == columns(second)
