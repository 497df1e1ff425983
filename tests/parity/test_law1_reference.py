"""Law 1: logits equal the reference library's, in float32 and float64, padded or not, and so do 12 greedy tokens.

One body for every family.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.parity.comparing import CASES, distances, greedy

IDS = [f"{name}-{length}" for name, length in CASES]
cases = pytest.mark.parametrize(("name", "length"), CASES, ids=IDS)
marks = [[], [pytest.mark.slow]] * len(CASES)  # every other one on each run
halves = pytest.mark.parametrize(
    ("name", "length"),
    [pytest.param(*case, id=id, marks=mark) for case, id, mark in zip(CASES, IDS, marks, strict=False)],
)

# Frequencies that depend on length are recomputed in every pass, by us always in float32
BY_LENGTH = ("dynamic", "longrope")


@cases
def test_law1_logits_equal_the_references(name: str, length: int, reference: ModuleType, tmp_path: Path) -> None:
    far = distances(name, length, reference, tmp_path)
    near = 1e-5 if any(kind in name for kind in BY_LENGTH) else 1e-9
    assert far.single < 1e-4 and far.double < near and far.padded < near


@halves
def test_law1_twelve_greedy_tokens_equal_the_references(
    name: str, length: int, reference: ModuleType, tmp_path: Path
) -> None:
    found = greedy(name, length, reference, tmp_path)
    if isinstance(found, str):
        pytest.skip(found)
    expected, ours = found
    assert ours == expected
