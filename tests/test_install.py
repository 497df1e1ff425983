"""A machine without a GPU need not fetch gigabytes for one: the way to say so works, and is written down."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
INDEX = "https://download.pytorch.org/whl/cpu"


def planned(*arguments: str) -> list[str]:
    """What `make` would run, without running it."""
    command = ["make", "--dry-run", "--always-make", *arguments]
    clean = {"PATH": os.environ["PATH"]}  # nothing of a make that may run these tests
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "pip" in line and " install " in line]


def test_pk2_torch_comes_from_the_index_that_is_asked_for() -> None:
    lines = planned(".venv/.installed", f"TORCH_INDEX={INDEX}")
    torch = [i for i, line in enumerate(lines) if line.endswith(" torch")]
    package = [i for i, line in enumerate(lines) if "--editable" in line]
    assert len(torch) == len(package) == 1, "torch on its own, then the package, which then has it"
    assert torch < package
    assert f"--index-url {INDEX}" in lines[torch[0]] and "--constraint constraints.txt" in lines[torch[0]]
    assert INDEX not in lines[package[0]], "the rest is not looked for there"
    assert not any("torch" in line for line in planned(".venv/.installed", "TORCH_INDEX="))


def test_pk2_no_package_for_cuda_is_pinned() -> None:
    names = [line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()]
    assert "torch" in names
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton"))]


def test_pk2_the_readme_says_how() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"TORCH_INDEX={INDEX}" in text
