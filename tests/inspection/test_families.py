"""What inspection takes apart adds up again in tiny models of every family, as their checkpoints are read."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

import plait
from plait.inspection import attribute, lens, memories, trace
from plait.inspection.memory.visits import stacks
from plait.inspection.reading import Reading
from tests.families.making import build
from tests.families.recipes import RECIPES
from tests.models import far
from tests.parity.comparing import inputs

FIRSTS = set({recipe.config: name for name, recipe in reversed(RECIPES.items())}.values())  # one of each family
EACH = [pytest.param(name, marks=[] if name in FIRSTS else [pytest.mark.slow], id=name) for name in RECIPES]


@pytest.mark.parametrize("name", EACH)
def test_the_sums_hold(name: str, reference: ModuleType, tmp_path: Path) -> None:
    build(reference, RECIPES[name]).save_pretrained(tmp_path)
    checkpoint = plait.load(tmp_path)
    tokens, extra, _ = inputs(checkpoint.architecture, 13, rows=1)
    seen = trace(checkpoint, Reading(tokens=tokens, texts=(), source=extra.get("source")))
    for tower, stack in stacks(seen.model).items():
        for turn, block in enumerate(stack.blocks):
            layer = f"{tower}.layers.{turn}"
            made = torch.stack([one.output() for one in memories(block.ffn, seen, f"{layer}.ffn")]).sum(0)
            assert far(block.ffn_norms.branch(made), seen[f"{layer}.ffn_branch"]) < 1e-5, layer
    for by in ("branches", "heads", "neurons"):
        found = attribute(seen, seen.output.shape[-1] - 1, position=6, by=by)  # type: ignore[arg-type]
        assert found.total == pytest.approx(found.output, abs=1e-4), by
    *_, (_, last) = lens(seen)
    assert far(last, seen.output) < 1e-5
