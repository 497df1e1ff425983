"""Every family in every other's dialect: the reference computes the same with it, or it is refused by a field."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

import plait
from plait.architecture import Architecture
from plait.families import FAMILIES, Family, FamilyError
from tests.families.making import build
from tests.families.recipes import RECIPES

FIELDS = {field.name for field in dataclasses.fields(Architecture)}
# From a family to one that can say what its recipe asks for; many more do, and are tried too
EXPECTED = {
    ("llama", "mistral"), ("mistral", "phi3"), ("qwen2", "seed_oss"), ("gpt2", "gpt_bigcode"), ("olmo2", "olmo3"),
    ("bert", "electra"), ("roberta", "camembert"), ("bart", "mvp"), ("mt5", "t5"), ("gemma", "granite"),
}  # fmt: skip


@pytest.fixture(scope="module")
def first_recipes(reference: ModuleType) -> dict[str, str]:
    """The first recipe of each model type."""
    found: dict[str, str] = {}
    for name, recipe in RECIPES.items():
        found.setdefault(getattr(reference, recipe.config).model_type, name)
    return found


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_another_dialect_computes_the_same_or_is_refused_by_a_field(
    family: Family, first_recipes: dict[str, str], reference: ModuleType, tmp_path: Path
) -> None:
    recipe = next((first_recipes[kind] for kind in family.model_types if kind in first_recipes), None)
    if recipe is None:
        pytest.skip("no class of the reference library writes it")
    build(reference, recipe).save_pretrained(tmp_path / "own")
    checkpoint = plait.load(tmp_path / "own")
    tokens = torch.tensor([[4, 9, 31, 7, 22, 50, 13, 8, 44, 5]])
    inputs = {"input_ids": tokens}
    ours = {}
    if checkpoint.architecture.kind == "encoder-decoder":
        inputs |= {"decoder_input_ids": tokens.flip(1)}
        ours = {"source": tokens}
    with torch.no_grad():
        expected = checkpoint.model(inputs.get("decoder_input_ids", tokens), **ours)
    said: set[str] = set()
    for other in FAMILIES:
        if other.name == checkpoint.layout.family:
            continue
        folder = tmp_path / other.name
        try:
            plait.save(checkpoint, folder, dialect=other.name)
        except FamilyError as error:
            assert FIELDS & set(re.findall(r"\w+", str(error))), f"to {other.name}: {error}"
            assert not folder.exists()
            continue
        said.add(other.name)
        config = json.loads((folder / "config.json").read_text())
        cls = getattr(reference, config["architectures"][0], None)
        own = cls and getattr(cls, "config_class", None)
        if own is None or own.model_type != config["model_type"]:  # there is no class for it: plait reads it back
            with torch.no_grad():
                assert torch.equal(plait.load(folder).model(inputs.get("decoder_input_ids", tokens), **ours), expected)
            continue
        model, info = cls.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
        missing = {name for name in info["missing_keys"] if "pooler" not in name}
        assert not missing and not info["unexpected_keys"] and not info["mismatched_keys"], other.name
        with torch.no_grad():
            theirs = model.eval()(**inputs)[0]
        assert (theirs - expected).abs().max() <= 1e-4 * max(1, float(expected.abs().max())), other.name
    assert {to for own, to in EXPECTED if own == family.name} <= said
