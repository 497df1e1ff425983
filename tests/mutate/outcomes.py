"""A pytest plugin: what became of each test, and whose plait was tested, as lines of JSON for the runner."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from typing import Any

import pytest

FILE = "PLAIT_MUTATE_OUTCOMES"  # the environment variable that names the file to write


def _write(record: dict[str, Any]) -> None:
    with open(os.environ[FILE], "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        error = call.excinfo
        _write(
            {
                "test": item.nodeid,
                "outcome": report.outcome if report.when == "call" or report.outcome == "skipped" else "error",
                "error": error.typename if error else None,
                "message": str(error.value).strip().partition("\n")[0] if error else "",
            }
        )
    return report


def pytest_sessionfinish() -> None:
    files = {module.__file__ for name, module in list(sys.modules.items()) if name.partition(".")[0] == "plait"}
    _write({"imported": sorted(file for file in files if file)})
