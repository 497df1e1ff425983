"""Filled: numbers as a person reads them, and every sentence and formula of every step in both languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import plait.inspection.walk
import plait.studio.walk
from plait.architecture import Architecture
from plait.inspection.walk import Choice, Sum, walk
from plait.pages import LANGUAGES
from plait.studio.walk.filled import (
    INTERFACE,
    STEPS,
    bracketed,
    constant,
    formula,
    number,
    percent,
    products,
    sentence,
    shown,
)
from tests.inspection.making import made, reading
from tests.strategies import over_grid
from tests.studio.walk.walking import walked


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1.000"),
        (-0.5, "−0.5000"),
        (123.456, "123.5"),
        (99999.9, "100000"),
        (0.00012345, "0.0001234"),
        (0.000012345, "1.23e−5"),
        (-12345678.0, "−1.23e7"),
        (float("-inf"), "−∞"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_have_four_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


def test_shares_and_constants() -> None:
    assert [percent(share) for share in (1.0, 0.5317, 0.0012, 1e-9, 0.0)] == [
        "100.0 %",
        "53.2 %",
        "0.12 %",
        "<0.01 %",
        "0 %",
    ]
    assert [constant(value) for value in (49152, 0.125, 1.0, "relu", 11.313708)] == [
        "49,152",
        "0.125",
        "1",
        "relu",
        "11.31",
    ]


def test_white_space_of_tokens_is_seen() -> None:
    assert [shown(text) for text in (" dog", "dog", "  ", "a\n", " two words", "\x06")] == [
        "␣dog",
        "dog",
        "␣␣",
        "a⏎",
        "␣two words",
        "␆",
    ]


@over_grid
def test_every_step_is_said_in_both_languages(architecture: Architecture) -> None:
    told = walk(made(architecture), reading(architecture))
    for tower in told.towers:
        choice = Choice(told, tower, layer=len(tower.layers) - 1, head=tower.n_heads - 1)
        for step in choice.steps:
            choice.begin(step)
            assert STEPS[step.title].en and (not step.group or STEPS[step.group].en)
            for language in LANGUAGES:
                for key in (*step.says, *step.found):
                    assert "{" not in sentence(key, step.slots, choice, step, language)
                for one in step.formulas:
                    assert "{" not in formula(one.filled, one.slots, choice, step, language)
            assert all(STEPS[view.label].en for view in step.views if view.label)


def test_a_sum_is_written_out_or_shows_its_first_terms_and_its_last() -> None:
    told, _ = walked("experts")  # heads of 6 numbers, 7 tokens
    choice, place = Choice(told, told.towers[0]), "decoder.layers.@.attention"
    queries, keys, pattern, values = (
        told.trace[f"decoder.layers.0.attention.{name}"] for name in ("queries", "keys", "pattern", "values")
    )

    def terms(left: torch.Tensor, right: torch.Tensor) -> list[str]:
        pairs = zip(left.tolist(), right.tolist(), strict=True)
        return [f"{bracketed(number(a))} × {bracketed(number(b))}" for a, b in pairs]

    short = products(Sum(left=f"{place}.queries[h p *]", right=f"{place}.keys[g k *]", of=6), choice)
    assert short.split(" + ") == terms(queries[0, -1], keys[0, 0])
    long = products(Sum(left=f"{place}.pattern[h p *]", right=f"{place}.values[g * e]", of=len(pattern[0])), choice)
    first, second, *_, last = terms(pattern[0, -1], values[0, :, 0])
    assert long.split(" + ") == [first, second, "…", last]


MADE_UP = re.compile(
    r"^(logits|probabilities|pooling|of|shared)_|_(kind|found|title|says|adds|size)$|^(attention|cross|ffn)$"
)


def test_no_word_is_left_unused() -> None:
    """But for those whose keys are put together."""
    packages = (Path(package.__path__[0]) for package in (plait.inspection.walk, plait.studio.walk))
    files = [path for folder in packages for path in folder.iterdir() if path.suffix in (".py", ".js")]
    sources = "".join(path.read_text(encoding="utf-8") for path in files).replace("'", '"')
    words = [key for table in (STEPS, INTERFACE) for key in table if not MADE_UP.search(key)]
    assert [key for key in words if f'"{key}"' not in sources] == []
