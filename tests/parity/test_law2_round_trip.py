"""Law 2: load then save gives byte-equal tensors and an equivalent config; the reference library reads it in full."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

import plait
from plait.architecture import Architecture
from plait.presets import PRESETS
from tests.families.making import build
from tests.families.recipes import RECIPES
from tests.models import far, random_model, random_source, random_tokens, tiny
from tests.parity.comparing import stored
from tests.strategies import over_grid

T5_LINE = ("t5", "mt5", "umt5")  # whose flag speaks of a scale, not of the head


# The first recipe of every third family in half precision too; the others where there is time
FIRST = {*sorted({recipe.config: name for name, recipe in reversed(RECIPES.items())}.values())[::3]}
CASES = [
    pytest.param(name, dtype, id=f"{name}-{kind}", marks=[pytest.mark.slow] if half and name not in FIRST else [])
    for name in RECIPES
    for kind, dtype, half in (("fp32", torch.float32, False), ("bf16", torch.bfloat16, True))
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_law2_load_then_save_is_the_same_file(
    name: str, dtype: torch.dtype, reference: ModuleType, tmp_path: Path
) -> None:
    theirs = build(reference, RECIPES[name]).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    plait.save(plait.load(tmp_path / "theirs"), tmp_path / "ours")
    assert stored(tmp_path / "ours") == stored(tmp_path / "theirs")
    ours, original = (json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("ours", "theirs"))
    if RECIPES[name].stored_head and original["model_type"] not in T5_LINE:
        assert original.pop("tie_word_embeddings", True) is True and ours.pop("tie_word_embeddings") is False
    assert ours == original
    back, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True, dtype=dtype)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    for mine, other in zip(back.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert torch.equal(mine, other)


@over_grid
def test_law2_the_native_dialect_says_everything(architecture: Architecture, tmp_path: Path) -> None:
    model = random_model(architecture)
    checkpoint = plait.Checkpoint(architecture=architecture, model=model)
    plait.save(checkpoint, tmp_path / "native", dialect="plait")
    back = plait.load(tmp_path / "native")
    assert back.architecture == architecture
    tokens, source = random_tokens(2, 6), random_source(architecture, 2)
    for (name, mine), kept in zip(model.state_dict().items(), back.model.state_dict().values(), strict=True):
        assert torch.equal(mine, kept), name
    # a mapped tensor may lie unaligned, where the kernels sum in another order
    assert far(back.model(tokens, **source), model(tokens, **source)) < 1e-12


@pytest.mark.parametrize("preset", list(PRESETS))
def test_law2_the_native_dialect_says_every_preset_at_tiny_size(preset: str, tmp_path: Path) -> None:
    architecture = tiny(preset)
    model = random_model(architecture)
    plait.save(plait.Checkpoint(architecture=architecture, model=model), tmp_path / "native", dialect="plait")
    back = plait.load(tmp_path / "native")
    assert back.architecture == architecture
    for (name, mine), kept in zip(model.state_dict().items(), back.model.state_dict().values(), strict=True):
        assert torch.equal(mine, kept), name
