"""Terminal: every step, in both languages, within a hundred columns, with the trace's numbers."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from plait.inspection.walk import Choice
from plait.pages import LANGUAGES, Language
from plait.studio.walk import in_terminal
from plait.studio.walk.filled import STEPS, number, percent, shown
from plait.studio.walk.terminal import WIDE, wrapped
from tests.studio.walk.walking import KINDS, walked


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_fits(kind: str, language: Language) -> None:
    walk, _ = walked(kind)
    for tower in walk.towers:
        choice = Choice(walk, tower, layer=1, head=3)
        lines = list(in_terminal(choice, language, first=7))
        assert max(map(cell_len, lines)) <= WIDE
        titles = [line for line in lines if line[:2].strip().isdecimal()]
        assert titles == [
            f"{i:>2}  {STEPS[step.title].within(language)}" for i, step in enumerate(choice.steps, start=7)
        ]


def test_it_shows_the_layer_and_head_that_are_asked_for() -> None:
    walk, _ = walked("decoder")
    text = "\n".join(in_terminal(Choice(walk, walk.towers[0], layer=2, head=3, position=4), "en"))
    pattern = walk.trace["decoder.layers.2.attention.pattern"][3, 4]
    most = int(pattern.argmax())
    tokens = [shown(token) for token in walk.towers[0].tokens]
    assert f"In head 3, “{tokens[4]}” looks most at “{tokens[most]}”, with {percent(float(pattern[most]))}" in text
    row = next(line for line in text.splitlines() if line.lstrip().startswith("▸") and "%" in line)
    shown_of = range(max(0, min(most - 4, len(pattern) - 8)), max(0, min(most - 4, len(pattern) - 8)) + 8)
    assert re.findall(r"\S+ %", row) == [percent(float(pattern[k])) for k in shown_of]
    left = walk.trace["decoder.layers.2.output"][4]
    assert f"and is now {number(float(left.double().norm()))}." in text


def test_a_chinese_text_is_broken_anywhere_but_before_its_stops() -> None:
    lines = list(wrapped("词" * 10 + "。" + "元" * 10, 20))
    assert lines == ["词" * 9, "词。" + "元" * 8, "元元"] and all(cell_len(line) <= 20 for line in lines)
    assert list(wrapped("  one two three", 9)) == ["  one two", "  three"]
