"""The walk's page in a real browser, offline: every step by keyboard alone, with the numbers that Python has.

Chromium is Debian's, driven by playwright (``plait[browser]``).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plait.cli.commands import main
from plait.inspection.walk import Choice
from plait.pages import LANGUAGES, Language
from plait.studio.walk.filled import INTERFACE, STEPS, formula, sentence, shown
from tests.studio.walk.walking import KINDS, page_of, walked

CHINESE = re.compile(r"[\u4e00-\u9fff]")


TOO_WIDE = """() => everyStep().flatMap(({ one, which, i }) => {
  go(i, which);
  return document.documentElement.scrollWidth > innerWidth ? [one.name] : [];
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: plait[browser] has it")
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no chromium on the path: Debian's package of that name has it")
    with playwright.sync_playwright() as engine:
        running = engine.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()


class Opened:
    """A page, opened from disk without a network; what its console says, and what it asks for, is kept."""

    def __init__(self, browser: Any, folder: Path, kind: str, *, wide: int = 1400, **more: Any) -> None:
        path, language = folder / f"{kind}.html", more.pop("language", "en")
        if kind in KINDS:
            path.write_text(page_of(kind, language=language), encoding="utf-8")
        self.context = browser.new_context(viewport={"width": wide, "height": 900}, offline=True, **more)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.said.append(request.url) if request.url != path.as_uri() else None)
        self.page.goto(path.as_uri())

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def first(self) -> None:
        """To the first step, by keyboard."""
        while self.page.locator("#walk .steps button").first.get_attribute("aria-current") is None:
            self.page.keyboard.press("ArrowLeft")

    def shows(self, choice: Choice, step: Any, language: Language = "en") -> None:
        """The step's sentences and formulas, as Python has them."""
        assert self.texts("#walk h2") == [STEPS[step.title].within(language)]
        assert self.texts("#walk .says") == [sentence(key, step.slots, choice, step, language) for key in step.says]
        assert self.texts("#walk .found") == [sentence(key, step.slots, choice, step, language) for key in step.found]
        filled = [formula(one.filled, one.slots, choice, step, language) for one in step.formulas if one.filled]
        assert self.texts("#walk .filled") == filled


@pytest.mark.parametrize("kind", KINDS)
def test_the_keyboard_reaches_every_step_and_its_numbers_are_pythons(kind: str, browser: Any, tmp_path: Path) -> None:
    walk, _ = walked(kind)
    choices = [Choice(walk, tower) for tower in walk.towers]
    steps = [(choice, step) for choice in choices for step in choice.steps]
    with Opened(browser, tmp_path, kind) as opened:
        opened.first()
        for turn, (choice, step) in enumerate(steps):
            choice.begin(step)
            opened.shows(choice, step)
            if turn + 1 < len(steps):
                opened.page.keyboard.press("ArrowRight")
        opened.page.keyboard.press("ArrowRight")
        assert opened.texts("#walk h2") == [STEPS[steps[-1][1].title].en], "there is nothing behind the last step"
        assert opened.said == []


def test_another_layer_head_and_token_have_their_own_numbers(browser: Any, tmp_path: Path) -> None:
    walk, _ = walked("decoder")
    choice = Choice(walk, walk.towers[0], layer=2, head=1, position=4)
    with Opened(browser, tmp_path, "decoder") as opened:
        for label, value in (("Layer", "2"), ("Head", "1"), ("Token", "4")):
            opened.page.locator(f"#walk .controls label:has-text('{label}') select").select_option(value)
        opened.first()
        for step in choice.steps:
            choice.begin(step)
            opened.shows(choice, step)
            opened.page.keyboard.press("ArrowRight")
        values = choice.at("decoder.layers.@.attention.pattern[h p *]")
        opened.page.locator("#walk .steps button", has_text="Softmax").click()
        cells = opened.page.locator(".grid-view tbody tr").nth(4).locator("td")
        assert cells.count() == len(values)
        said = [str(cells.nth(k).get_attribute("aria-label")) for k in range(5)]
        assert all(
            float(text.split(": ")[1].split()[0].lstrip("<")) == pytest.approx(100 * float(share), abs=0.06)
            for text, share in zip(said, values, strict=False)
        )


def test_keys_choose_layer_head_token_and_cell(browser: Any, tmp_path: Path) -> None:
    walk, _ = walked("decoder")
    n = len(walk.towers[0].tokens)
    with Opened(browser, tmp_path, "decoder") as opened:
        page = opened.page
        choice = Choice(walk, walk.towers[0], layer=1, head=3, position=n - 2)
        (step,) = [step for step in choice.steps if step.name == "attention.scores"]
        opened.first()
        while opened.texts("#walk h2") != [STEPS[step.title].en]:
            page.keyboard.press("ArrowRight")
        for key in ("l", "H", "T"):
            page.keyboard.press(key)
        choice.begin(step)
        opened.shows(choice, step)
        for _ in range(60):  # the grid is reached by tab alone
            if page.evaluate("document.activeElement.role") == "gridcell":
                break
            page.keyboard.press("Tab")
        k = choice.variables["k"]
        move, step_by = ("ArrowRight", 1) if k + 1 < n else ("ArrowLeft", -1)
        page.keyboard.press(move)
        choice.variables["k"] = k + step_by
        opened.shows(choice, step)
        page.keyboard.press("ArrowUp")
        choice.variables["p"] -= 1
        opened.shows(choice, step)
        assert page.locator("#walk .controls select").nth(2).input_value() == str(n - 3)
        (norm,) = [step for step in choice.steps if step.name == "ffn.norm"]
        page.locator("#walk .steps button", has_text="Norm").nth(1).click()
        for _ in range(60):
            if page.evaluate("document.activeElement.role") == "slider":
                break
            page.keyboard.press("Tab")
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
            page.keyboard.press(key)
        choice.begin(norm)
        choice.variables["d"] = 2
        opened.shows(choice, norm)
        assert page.evaluate("document.activeElement.ariaValueNow") == "2"
        assert opened.said == []


def test_a_cell_under_the_pointer_tells_its_formula(browser: Any, tmp_path: Path) -> None:
    walk, _ = walked("encoder-decoder")
    choice = Choice(walk, walk.towers[1])
    (step,) = [step for step in choice.steps if step.name == "cross.pattern"]
    with Opened(browser, tmp_path, "encoder-decoder") as opened:
        opened.page.locator("#walk .steps button", has_text="Softmax").nth(2).click()
        choice.begin(step)
        opened.shows(choice, step)
        before = dict(choice.variables)
        opened.page.locator(".grid-view tbody tr").nth(1).locator("td").nth(2).hover()
        choice.variables |= {"p": 1, "k": 2}
        opened.shows(choice, step)
        opened.page.mouse.move(2, 2)
        choice.variables = before
        opened.shows(choice, step)


def test_the_switch_changes_every_word(browser: Any, tmp_path: Path) -> None:
    walk, _ = walked("encoder-decoder")
    with Opened(browser, tmp_path, "encoder-decoder") as opened:
        opened.first()
        assert not CHINESE.search(opened.page.inner_text("body").replace("中文", ""))
        opened.page.get_by_text("中文").click()
        english = [
            said.en
            for table in (STEPS, INTERFACE)
            for said in table.values()
            if len(said.en) > 6 and said.en != said.zh
        ]
        for tower in walk.towers:
            choice = Choice(walk, tower)
            for step in choice.steps:
                choice.begin(step)
                opened.shows(choice, step, "zh")
                text = opened.page.inner_text("body")
                assert [said for said in english if "{" not in said and said in text] == []
                opened.page.keyboard.press("ArrowRight")
        assert opened.page.title().startswith("走进")
        assert opened.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("wide", [360, 1400])
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_step_is_wider_than_its_window(
    language: Language, wide: int, scheme: str, browser: Any, tmp_path: Path
) -> None:
    for kind in ("encoder-decoder", "experts"):
        with Opened(browser, tmp_path, kind, wide=wide, color_scheme=scheme, language=language) as opened:
            page = opened.page
            assert page.evaluate(TOO_WIDE) == []
            light = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
            assert (sum(light) > 600) == (scheme == "light")
            assert opened.said == []


def test_the_page_opens_at_what_was_chosen(browser: Any, tmp_path: Path) -> None:
    walk, _ = walked("encoder-decoder")
    with Opened(browser, tmp_path, "encoder-decoder") as opened:
        assert opened.texts("#walk .where")[0].startswith("Step ") and "Decoder" in opened.texts("#walk .where")[0]
        chips = opened.texts(".chips b")
        assert chips == [shown(token) for token in walk.towers[1].tokens]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "minilm"])
def test_pages_of_real_models_open(name: str, browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text, out = "The quick dog bites the old man.", tmp_path / f"{name}.html"
    assert main(["walk", str(request.getfixturevalue(name)), text, "--out", str(out)]) == 0
    assert out.stat().st_size < 20e6
    with Opened(browser, tmp_path, name) as opened:
        opened.page.keyboard.press("l")
        assert opened.page.evaluate(TOO_WIDE) == []
        assert opened.texts("#walk .where")[0].startswith("Step ") and opened.said == []
