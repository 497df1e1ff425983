"""A real browser for the pages: Debian's chromium, driven by playwright (``plait[browser]``)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest


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
