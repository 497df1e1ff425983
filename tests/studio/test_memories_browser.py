"""The memories page in a real browser, offline: every neuron by keyboard alone, with the numbers that Python has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch

from plait.inspection.memory import Study
from plait.pages import LANGUAGES, Language
from plait.studio.memories import memories_page
from plait.studio.memories.page import BROWSER
from tests.studio.test_memories_page import studied

KINDS = ("llama", "experts", "bert", "marian")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@cache
def found(name: str) -> Study:
    return studied(name, Path(mkdtemp()))


class Opened:
    """A page, opened from disk without a network; what its console says, and what it asks for, is kept."""

    def __init__(self, browser: Any, folder: Path, name: str, language: Language = "en", **more: Any) -> None:
        path = folder / "memories.html"
        path.write_text(memories_page(found(name), model=name, language=language), encoding="utf-8")
        self.context = browser.new_context(offline=True, **{"viewport": {"width": 1400, "height": 900}, **more})
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.said.append(request.url) if request.url != path.as_uri() else None)
        self.page.goto(path.as_uri())

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.said == []
        self.context.close()

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def find(self, text: str) -> None:
        """Search by keyboard, and go to the list."""
        self.press("/", "Control+a", "Delete")
        self.page.keyboard.type(text)
        self.page.wait_for_timeout(300)
        self.press("Enter")

    def choose(self, label: str, value: str) -> None:
        self.page.locator(".controls select").nth(("layer", "order", "within").index(label)).select_option(value)

    @property
    def count(self) -> int:
        return int(self.text(".count").split()[0].replace(",", ""))


def shown(token: str) -> str:
    return (token if token.strip() else token.replace(" ", "␣")).replace("\n", "↵").replace("\t", "⇥")


def every(name: str) -> list[tuple[Any, int]]:
    """Every neuron with its network, as the page numbers them."""
    return [(one, i) for layer in found(name).layers for one in layer.networks for i in range(len(one))]


@pytest.mark.parametrize("name", KINDS)
def test_each_neuron_is_reached_by_arrows_and_is_as_python_has_it(name: str, browser: Any, tmp_path: Path) -> None:
    with Opened(browser, tmp_path, name) as opened:
        opened.choose("order", "number")
        opened.page.locator(".list").focus()
        opened.press("Home")
        for number, (one, i) in enumerate(every(name)):
            if number:
                opened.press("ArrowDown")
            if number % 5:
                continue
            lane = found(name).corpus.lanes[one.tower]

            def spelt(ids: Any, lane: Any = lane) -> str:
                return lane.tokenizer.decode([int(id) for id in ids if id >= 0], continues=True)

            assert opened.text(".neuron h3").startswith(f"Layer {one.turn}, ")
            assert opened.text(".neuron h3").endswith(f"neuron {i}")
            if name == "experts":
                assert ("shared expert" if "shared" in one.name else f"expert {one.name[-1]},") in opened.text("h3")
            assert f"agreement at {int(one.agrees[i].sum())} of 6 triggers" in opened.text(".facts")
            lists = [one.raised[i]] + ([one.lowered[i]] if bool((one.triggers.strengths[i] < 0).any()) else [])
            assert opened.texts(".says code") == [shown(spelt([id])) for ids in lists for id in ids.tolist()]
            fired = one.triggers.places[i] >= 0
            strengths = [float(text.replace("−", "-")) for text in opened.texts(".triggers > li > .number")]
            assert strengths == pytest.approx(one.triggers.strengths[i][fired].tolist(), rel=0.01)
            marks = [mark.removesuffix("✓") for mark in opened.texts(".triggers mark")]
            assert marks == [shown(spelt([id])) for id in lane.tokens(one.triggers.places[i][fired]).tolist()]
            assert len(opened.texts(".tick")) == int(one.agrees[i].sum())
        opened.press("End")
        assert opened.page.locator(".list .row").last.get_attribute("aria-selected") == "true"
        assert opened.page.locator(".list .row[aria-selected=true]").count() == 1


def test_neurons_are_ordered_searched_and_chosen_by_layer(browser: Any, tmp_path: Path) -> None:
    name = "llama"
    neurons = every(name)
    with Opened(browser, tmp_path, name) as opened:
        assert opened.count == 40
        added = torch.cat([layer.networks[0].added for layer in found(name).layers])
        agrees = torch.cat([layer.networks[0].agrees.sum(1) for layer in found(name).layers])
        best = max(range(40), key=lambda i: (int(agrees[i]), float(added[i])))
        assert opened.text(".list .row b") == f"{neurons[best][0].turn}.{neurons[best][1]}", "by agreement at first"
        opened.choose("order", "strength")
        first = int(added.argmax())
        assert opened.text(".list .row b") == f"{neurons[first][0].turn}.{neurons[first][1]}"
        opened.choose("layer", "decoder.1")
        assert opened.count == 20 and all(text.startswith("1.") for text in opened.texts(".list .row b"))
        opened.choose("layer", "")
        lane = found(name).corpus.lanes["decoder"]
        (dog,) = lane.tokenizer.encode("d", specials=False)
        for within in ("triggers", "values", "both"):
            opened.choose("within", within)
            opened.find("d")
            wanted = 0
            for one, i in neurons:
                triggers = dog in lane.tokens(one.triggers.places[i]).tolist()
                subtracts = bool((one.triggers.strengths[i] < 0).any())
                values = dog in one.raised[i].tolist() or (subtracts and dog in one.lowered[i].tolist())
                wanted += {"triggers": triggers, "values": values, "both": triggers or values}[within]
            assert opened.count == wanted, within
        opened.choose("within", "numbers")
        opened.find("1.7")
        assert opened.texts(".list .row b") == ["1.7"] and opened.text(".neuron h3") == "Layer 1, neuron 7"
        opened.find("1.99")
        assert opened.count == 0 and opened.text(".neuron") == BROWSER["none"].en


def test_the_page_is_used_by_keyboard_alone(browser: Any, tmp_path: Path) -> None:
    with Opened(browser, tmp_path, "marian") as opened:
        reached: list[str] = []
        for _ in range(30):
            opened.press("Tab")
            reached.append(
                opened.page.evaluate("document.activeElement.tagName + '.' + document.activeElement.className")
            )
        for what in ("BUTTON.", "SUMMARY.", "SELECT.", "INPUT.", "DIV.list", "DIV.card", "ARTICLE.neuron card"):
            assert what in reached, what
        opened.find("e")
        assert opened.page.evaluate("document.activeElement.className") == "list"
        before = opened.text(".neuron h3")
        opened.press("ArrowDown")
        assert opened.text(".neuron h3") != before
        opened.press("PageDown", "ArrowUp", "Home")
        assert opened.text(".neuron h3") == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("wide", [360, 1400])
@pytest.mark.parametrize("language", LANGUAGES)
def test_it_fits_narrow_and_wide_in_both_languages(
    language: Language, wide: int, scheme: str, browser: Any, tmp_path: Path
) -> None:
    for name in ("experts", "marian"):
        with Opened(
            browser, tmp_path, name, language, viewport={"width": wide, "height": 800}, color_scheme=scheme
        ) as opened:
            assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
            background = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", background)[:3])) > 380) == (scheme == "light")
            for selector in (
                "h1",
                ".prose p",
                "figcaption",
                ".controls label > span",
                ".count",
                ".keys",
                ".facts",
                "h4",
            ):
                for text in opened.texts(selector):
                    assert bool(CHINESE.search(text)) == (language == "zh"), (selector, text)


def test_the_switch_turns_all_of_it(browser: Any, tmp_path: Path) -> None:
    with Opened(browser, tmp_path, "bert") as opened:
        assert opened.text(".controls label > span") == BROWSER["layer"].en
        before = opened.text(".neuron h3")
        opened.page.locator("nav.languages button").nth(1).click()
        assert opened.text(".controls label > span") == BROWSER["layer"].zh
        assert opened.texts("option")[0] == BROWSER["every"].zh
        assert CHINESE.search(opened.text(".neuron h3")) and CHINESE.search(opened.text(".facts"))
        opened.page.locator("nav.languages button").nth(0).click()
        assert opened.text(".neuron h3") == before
