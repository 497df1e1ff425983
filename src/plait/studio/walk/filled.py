"""Filled: sentences and formulas of a walk with their values, as a person reads numbers.

``values.js`` does the same on the page; a test in a browser compares them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from plait.inspection.walk import Choice, Step, Sum
from plait.inspection.walk.step import Filling
from plait.pages.words import Language, Words

STEPS = Words.of("plait.studio.walk", "steps")
INTERFACE = Words.of("plait.studio.walk", "interface")
FIELD = re.compile(r"\{(\w+)\}")
TERMS = 6  # of a sum that are all written; of longer ones the first two and the last
BESIDE = ("=", "→", "(")  # behind these a negative number needs no brackets
SPACE = "␣"
SIGNS = {**{chr(code): chr(0x2400 + code) for code in range(32)}, "\n": "⏎", "\t": "⇥"}  # of control characters


def number(value: float) -> str:
    """Four digits that count; very small and very large ones by powers of ten."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e6 or size < 1e-4:
        return re.sub(r"e([+-])0?", lambda e: "e−" if e[1] == "-" else "e", f"{value:.2e}").replace("-", "−")
    digits = max(0, 3 - math.floor(math.log10(size)))
    return f"{value:.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    """A share of one."""
    value = 100 * share
    if value >= 1:
        return f"{value:.1f} %"
    return "0 %" if value == 0 else f"{value:.2f} %" if value >= 0.01 else "<0.01 %"


def constant(value: float | int | str) -> str:
    """What stands in a step as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or value == round(value):
        return f"{value:,.0f}".replace("-", "−")
    text = number(value)
    return text if "e" in text or "." not in text else text.rstrip("0").rstrip(".")


def shown(text: str) -> str:
    """A token with the space before it, and what else is white in it, seen."""
    rest = text.lstrip(" ")
    return SPACE * (len(text) - len(rest)) + "".join(SIGNS.get(letter, letter) for letter in rest)


def sentence(key: str, slots: Mapping[str, Filling], choice: Choice, step: Step, language: Language) -> str:
    """One sentence of a step."""
    text = STEPS[key].within(language)
    return FIELD.sub(lambda field: filling(slots[field[1]], choice, step, language), text)


def formula(filled: str, slots: Mapping[str, Filling], choice: Choice, step: Step, language: Language) -> str:
    """A formula with its values."""

    def value(field: re.Match[str]) -> str:
        text = filling(slots[field[1]], choice, step, language)
        before = filled[: field.start()].rstrip()
        free = not before or before.endswith(BESIDE) or isinstance(slots[field[1]], Sum)
        return text if free else bracketed(text)

    return FIELD.sub(value, filled)


def bracketed(text: str) -> str:
    """A negative number in brackets."""
    return f"({text})" if text.startswith("−") else text


def filling(slot: Filling, choice: Choice, step: Step, language: Language) -> str:
    """What fills a field."""
    if isinstance(slot, Sum):
        return products(slot, choice)
    if isinstance(slot, int | float | str):
        return constant(slot)
    if slot.form == "index":
        return str(choice.variables[slot.at])
    if slot.form == "text":
        return shown(str(choice.text(slot.at)))
    if slot.form == "token":
        tokens = choice.seen(step) if slot.at == "k" else choice.told.tokens
        return shown(tokens[choice.variables[slot.at]])
    row = choice.at(slot.at)
    if slot.form == "number":
        return number(float(row))
    if slot.form == "percent":
        return percent(float(row))
    if slot.form == "size":
        return number(float(row.double().norm()))
    tokens = choice.seen(step)
    if slot.form == "unseen":
        hidden = [f"{i} “{shown(tokens[i])}”" for i, seen in enumerate(row.tolist()) if not seen]
        return ", ".join(hidden) if hidden else INTERFACE["none"].within(language)
    most = int(row.abs().argmax())
    if slot.form == "most_token":
        return shown(tokens[most])
    if slot.form == "most_index":
        return str(most)
    return percent(float(row[most])) if slot.form == "most_percent" else number(float(row[most]))


def products(told: Sum, choice: Choice) -> str:
    """A sum written out, or its first two terms and its last."""
    left, right = choice.at(told.left).flatten().tolist(), choice.at(told.right).flatten().tolist()
    whole = told.of <= TERMS and not told.packed
    places = range(told.of) if whole else (0, 1, told.of - 1)
    terms = [
        f"{bracketed(number(left[place]))} × {bracketed(number(right[turn if told.packed else place]))}"
        for turn, place in enumerate(places)
    ]
    return " + ".join(terms if whole else [*terms[:2], "…", terms[2]])
