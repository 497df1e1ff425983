"""The table of docs/parity.md names every family there is, its file, and how long that is."""

from __future__ import annotations

from plait.families import FAMILIES
from tests.parity.table import PAGE, homes, known


def test_the_page_lists_every_family() -> None:
    places = homes()
    rows = [line.split(" | ")[:4] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    expected = [
        ["| " + name, kind, file, str(lines)] for name, kind, file, lines in (known(f, places) for f in FAMILIES)
    ]
    assert rows == expected
