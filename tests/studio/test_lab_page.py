"""The lab's page: whole, in both languages, asking nothing of a network, with every figure and verdict on it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from plait.inspection.lab import Experiment, Finding, Result
from plait.inspection.lab.experiments import EXPERIMENTS, experiment
from plait.inspection.lab.figures import Bar, Bars, Lines, Matrix, Series, Table
from plait.pages.words import LANGUAGES, Language, Said, Words
from plait.studio.lab import lab_page
from tests.inspection.lab.pretended import results

pytestmark = pytest.mark.slow  # experiments are run

VOID = {"meta", "path", "br", "link", "input"}


class Balance(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(text: str) -> Balance:
    found = Balance()
    found.feed(text)
    assert found.open == []
    return found


def whole(language: Language = "en") -> str:
    found = results()
    return lab_page([(one, found[one.name]) for one in EXPERIMENTS], language)


@pytest.mark.slow
def test_the_page_of_all_is_whole_and_asks_nothing_of_a_network():
    text = whole()
    attributes = parsed(text).attributes
    links = [value for name, value in attributes if name == "href"]
    places = [value for name, value in attributes if name == "id"]
    assert links == [f"#{one.name}" for one in EXPERIMENTS] and places == [one.name for one in EXPERIMENTS]
    assert not [name for name, _ in attributes if name in ("src", "xlink:href", "action")]
    assert not re.search(r"https?:|@import|url\(", text)


@pytest.mark.slow
@pytest.mark.parametrize("name", [one.name for one in EXPERIMENTS])
def test_the_page_of_one_has_its_claim_findings_and_figures_in_both_languages(name: str):
    one, result = experiment(name), results()[name]
    text = lab_page([(one, result)])
    parsed(text)
    for said in (one.title, one.words["claim"], one.words["explained"]):
        for language in LANGUAGES:
            assert escaped(said.within(language)) in text
    assert text.count("<figure") == len(result.figures)
    assert text.count("class=verdict") == len(result.findings)


def escaped(text: str) -> str:
    return (
        text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&quot;")
        .replace("'", "&#x27;")
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_opens_in_the_language_that_was_asked_for(language: Language):
    title = {"en": "<title>The lab</title>", "zh": "<title>实验室</title>"}[language]
    assert f'<html lang="{language}">' in whole(language) and title in whole(language)


def test_the_wrong_claims_stand_together_as_refuted():
    text = whole()
    table = text[text.index("Claims in circulation") : text.index('<section id="norm">')]
    assert re.findall(r"<s>(W\d)</s>", table) == [f"W{i}" for i in range(1, 9)]
    assert table.count('<tr class="refuted">') == 8
    assert "<dd>8 / 8</dd>" in text


def made(finding: Finding, *figures: Lines | Bars | Matrix | Table) -> str:
    words = Words({key: {"en": key, "zh": key} for key in ("title", "claim", "explained")})
    one = Experiment(name="x", words=words, run=lambda _: result)
    result = Result(findings=(finding,), figures=figures)
    return lab_page([(one, result)])


def test_verdicts_of_every_kind():
    def kind(id: str, holds: bool) -> str:
        text = made(Finding(id=id, what="", claimed="", measured="", holds=holds))
        return re.findall(r'<tr class="(\w+)">', text)[0]

    assert kind("N1", True) == "holds" and kind("N1", False) == "not"
    assert kind("W1", False) == "refuted" and kind("W1", True) == "open"


def test_what_is_measured_is_text_and_no_markup():
    text = made(Finding(id="P6", what="<b>", claimed='"', measured="ValueError: <script>", holds=True))
    parsed(text)
    assert "&lt;b&gt;" in text and "ValueError: &lt;script&gt;" in text


def test_figures_of_every_kind():
    name = Said("tokens", "词元")
    many = tuple(Series(name=str(i), points=((0.0, float(i)), (1.0, 2.0 * i))) for i in range(6))
    text = made(
        Finding(id="", what="", claimed="", measured="", holds=True),
        Lines(title=name, across=name, series=many, log=False),
        Bars(title=name, bars=(Bar(name=name, value=2.0, low=1.0, high=4.0), Bar(name="b", value=1.0))),
        Matrix(title=name, rows=("x", name), columns=("y",), values=((-1.0,), (3.0,)), digits=1),
        Table(title=name, columns=(name, "n"), rows=(("a", "1"),)),
    )
    parsed(text)
    assert all(f'class="line {colour}"' in text for colour in ("one", "two", "three", "four", "five", "six"))
    assert re.findall(r"<i style=\"width:([\d.]+)%", text) == ["50.00", "25.00"]  # of the largest there was, 4
    assert '<b style="left:25.00%;width:75.00%"></b>' in text
    assert re.findall(r"--share:([\d.]+)", text) == ["0.000", "1.000"]  # from the least to the largest
    assert ">-1.0</td>" in text and text.count("词元") > 8
