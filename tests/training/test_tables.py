"""The manual's tables are those of the declarations."""

from __future__ import annotations

from pathlib import Path

from plait.training.places import SECTIONS, keys
from plait.training.tables import markdown, rows

MANUAL = Path(__file__).parents[2] / "docs/training.md"


def test_the_manual_has_every_setting_as_it_is_declared():
    _, begun, rest = MANUAL.read_text(encoding="utf-8").partition("<!-- settings -->\n")
    table, ended, _ = rest.partition("<!-- /settings -->")
    assert begun and ended and table == markdown(), "run: plait settings --format markdown"


def test_every_setting_says_what_it_means():
    for section in SECTIONS:
        assert len(rows(section)) == len(keys(section))
        assert all(len(row.meaning) > 10 and row.kind for row in rows(section))


def test_defaults_and_bounds_are_told():
    (beta2,) = [row for row in rows("optimizer") if row.key == "beta2"]
    assert (beta2.kind, beta2.default) == ("number >= 0, < 1", "0.95")
    (kind,) = [row for row in rows("optimizer") if row.key == "kind"]
    assert (kind.kind, kind.default) == ("adamw, muon", "adamw")
