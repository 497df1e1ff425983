"""The checkpoint whose answers are known, written once for each process."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def forced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.cli.forced import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("forced"))
