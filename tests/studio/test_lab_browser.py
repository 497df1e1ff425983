"""The lab's page in a real browser, offline: narrow and wide, in both languages, by keyboard alone, values read off."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from plait.inspection.lab.experiments import EXPERIMENTS
from plait.studio.lab import lab_page
from tests.inspection.lab.pretended import results

pytestmark = pytest.mark.slow  # experiments are run

CHINESE = re.compile(r"[\u4e00-\u9fff]")


class Opened:
    """The page of all, opened from disk without a network; what its console says, and what it asks for, is kept."""

    def __init__(self, browser: Any, folder: Path, **more: Any) -> None:
        path, found = folder / "lab.html", results()
        path.write_text(lab_page([(one, found[one.name]) for one in EXPERIMENTS]), encoding="utf-8")
        self.context = browser.new_context(offline=True, **{"viewport": {"width": 1300, "height": 900}, **more})
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.said.append(request.url) if request.url != path.as_uri() else None)
        self.page.goto(path.as_uri())

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, *_: object) -> None:
        assert self.said == []
        self.context.close()


@pytest.mark.parametrize("width", [360, 800, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_page(width: int, scheme: str, browser: Any, tmp_path: Path):
    with Opened(browser, tmp_path, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        for language in ("en", "zh"):
            page.click(f'nav.languages button[data-to="{language}"]')
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".verdict").first.is_visible()
        ink, card = (page.evaluate(f"getComputedStyle(document.body).{what}") for what in ("color", "backgroundColor"))
        assert ink != card


def test_one_language_at_a_time(browser: Any, tmp_path: Path):
    with Opened(browser, tmp_path) as page:
        assert not CHINESE.search(page.inner_text("body").replace("中文", ""))  # but for the switch itself
        page.click('button[data-to="zh"]')
        assert page.title() == "实验室" and page.inner_text("h1") == "实验室"
        for one in EXPERIMENTS:
            said = page.inner_text(f"#{one.name}")
            assert one.words["claim"].zh in said and one.words["claim"].en not in said


def test_by_keyboard_alone(browser: Any, tmp_path: Path):
    with Opened(browser, tmp_path) as page:
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # the second of the two languages
        assert page.evaluate("document.documentElement.lang") == "zh"
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # the third experiment of the list
        page.wait_for_function("window.scrollY > 100")
        assert page.evaluate("location.hash") == f"#{EXPERIMENTS[2].name}"
        assert page.evaluate("document.documentElement.lang") == "zh"


def test_values_under_the_pointer_are_said_in_the_page_s_language(browser: Any, tmp_path: Path):
    with Opened(browser, tmp_path) as page:
        plane = page.locator("#extrapolation .plane").first
        for language, words in (("en", ("tokens 256", "ALiBi 2.8", "sinusoids 4")), ("zh", ("词元 256", "正弦 4"))):
            page.click(f'button[data-to="{language}"]')
            plane.scroll_into_view_if_needed()
            box = plane.bounding_box()
            assert box is not None
            page.mouse.move(box["x"] + 0.95 * box["width"], box["y"] + box["height"] / 2)
            said = plane.locator("output").inner_text()
            assert all(word in said for word in words), said
