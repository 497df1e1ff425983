"""A wrapper's text model: the reference library's logits, said aloud; all that is around it written back as it was."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import plait
from plait.families import WRAPPERS, FamilyError, family_for
from tests.families.making import answer, build, read, write
from tests.families.recipes.wrappers import RECIPES
from tests.models import far
from tests.parity.comparing import Exact64

EACH = pytest.mark.parametrize("name", RECIPES)
NEW_STYLE, OLD_STYLE = "model.language_model.", "language_model.model."
# Towers that need libraries which are not among the tests' own; the text models are llama's and qwen2's as in llava
UNTRIED = {"fast_vlm", "perception_lm"}


def loaded(folder: Path) -> plait.Checkpoint:
    """With the one notice that there must be."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checkpoint = plait.load(folder)
    told = [str(warning.message) for warning in caught]
    assert len(told) == 1 and "is read as its text model" in told[0], told
    return checkpoint


def inputs(recipe: str, tokens: Tensor) -> dict[str, Any]:
    own = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "use_cache": False}
    if recipe.startswith("paligemma"):  # type 0 is a prompt, which sees what comes after it
        own["token_type_ids"] = torch.ones_like(tokens)
    return own


def test_every_wrapper_has_a_recipe(reference: ModuleType) -> None:
    assert {getattr(reference, recipe.config).model_type for recipe in RECIPES.values()} == WRAPPERS.keys() - UNTRIED


@EACH
def test_the_text_model_alone(name: str, reference: ModuleType, tmp_path: Path) -> None:
    theirs = build(reference, RECIPES[name])
    theirs.save_pretrained(tmp_path / "theirs")
    checkpoint = loaded(tmp_path / "theirs")
    tokens = torch.randint(4, 50, (2, 13), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert far(checkpoint.model(tokens), answer(theirs, inputs(name, tokens))) < 1e-4

    plait.save(checkpoint, tmp_path / "ours")
    assert read(tmp_path / "ours")[0] == read(tmp_path / "theirs")[0]
    mine, stored = read(tmp_path / "ours")[1], read(tmp_path / "theirs")[1]
    assert mine.keys() == stored.keys() and all(torch.equal(mine[key], stored[key]) for key in stored)

    with torch.no_grad(), Exact64():
        exact = answer(theirs.double(), inputs(name, tokens))
    assert far(checkpoint.model.double()(tokens), exact) < 1e-9


def respelled(tensors: dict[str, Tensor], old: str, new: str, head: str) -> dict[str, Tensor]:
    """The same file in another spelling."""
    names = {name: name.replace(old, new, 1) if name.startswith(old) else name for name in tensors}
    return {names[name] if "lm_head" not in name else head: tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", ["gemma3", "llava", "mistral3", "qwen2_vl", "qwen2_5_vl", "smolvlm"])
def test_every_spelling_of_the_names(name: str, reference: ModuleType, tmp_path: Path) -> None:
    build(reference, RECIPES[name]).save_pretrained(tmp_path / "saved")
    config, tensors = read(tmp_path / "saved")
    tower = "text_model" if name == "smolvlm" else "language_model"
    here = next(f for f in (f"model.{tower}.", f"{tower}.model.", "model.") if any(n.startswith(f) for n in tensors))
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        expected = loaded(tmp_path / "saved").model(tokens)
    spellings = {f"model.{tower}.": "lm_head.weight", f"{tower}.model.": f"{tower}.lm_head.weight"}
    for spelling, head in (spellings | {"model.": "lm_head.weight"}).items():
        if spelling == "model." and here != "model.":  # what else is under model. would seem to be the text's
            tensors = {n: t for n, t in tensors.items() if n.startswith(here) or not n.startswith("model.")}
        file = respelled(tensors, here, spelling, head)
        write(tmp_path / spelling, config, file)
        checkpoint = loaded(tmp_path / spelling)
        with torch.no_grad():
            assert torch.equal(checkpoint.model(tokens), expected)
        plait.save(checkpoint, tmp_path / "back", overwrite=True)
        back = read(tmp_path / "back")[1]
        assert back.keys() == file.keys() and all(torch.equal(back[key], file[key]) for key in file)


def test_an_old_flat_config(reference: ModuleType, tmp_path: Path) -> None:
    """Qwen2-VL as it was published: no text_config, a rotation of the kind mrope."""
    build(reference, RECIPES["qwen2_vl"]).save_pretrained(tmp_path / "saved")
    config, tensors = read(tmp_path / "saved")
    inner = config.pop("text_config")
    table = inner.pop("rope_parameters")
    flat = {**inner, **config, "rope_theta": table["rope_theta"]}
    flat["rope_scaling"] = {"type": "mrope", "mrope_section": table["mrope_section"]}
    write(tmp_path / "flat", flat, tensors)
    old, new = loaded(tmp_path / "flat"), loaded(tmp_path / "saved")
    assert old.architecture == new.architecture
    plait.save(old, tmp_path / "back")
    assert read(tmp_path / "back")[0] == flat
    theirs = reference.Qwen2VLForConditionalGeneration.from_pretrained(tmp_path / "back").eval()
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        assert far(old.model(tokens), theirs(input_ids=tokens).logits) < 1e-4


@pytest.mark.parametrize("kind", WRAPPERS)
def test_text_classes_have_their_own_defaults(kind: str, reference: ModuleType) -> None:
    """An empty text_config is what the class makes of it."""
    wrapper = WRAPPERS[kind]
    full = reference.AutoConfig.for_model(wrapper.text).to_dict() | {"model_type": wrapper.text}
    family = family_for({"model_type": kind, "text_config": {"model_type": wrapper.text}})
    empty = {"model_type": kind, "text_config": {}}
    assert family.architecture({"model_type": kind, "text_config": full}) == family.architecture(empty)
    assert not family.unread({"model_type": kind, "text_config": full})


def test_what_was_changed_is_written(reference: ModuleType, tmp_path: Path) -> None:
    """A text model whose head no longer is its table: the flag says so, and the head is written under its name."""
    build(reference, RECIPES["gemma3"]).save_pretrained(tmp_path / "saved")
    checkpoint = loaded(tmp_path / "saved")
    assert checkpoint.architecture.tied
    from dataclasses import replace

    untied = checkpoint.architecture.replace(tied=False)
    model = plait.Transformer(untied)
    state = checkpoint.model.state_dict()
    model.load_state_dict(state | {"head.output.weight": state["embedding.tokens.weight"] + 1})
    changed = replace(checkpoint, architecture=untied, model=model)
    plait.save(changed, tmp_path / "untied")
    config = json.loads((tmp_path / "untied" / "config.json").read_text())
    assert config["tie_word_embeddings"] is config["text_config"]["tie_word_embeddings"] is False
    back = loaded(tmp_path / "untied")
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        assert back.architecture == untied and torch.equal(back.model(tokens), model(tokens))


def test_the_text_model_is_written_alone(reference: ModuleType, tmp_path: Path) -> None:
    build(reference, RECIPES["llava"]).save_pretrained(tmp_path / "saved")
    checkpoint = loaded(tmp_path / "saved")
    with pytest.warns(plait.PlaitNotice, match="has no place for"):
        plait.save(checkpoint, tmp_path / "alone", dialect="llama")
    with pytest.warns(
        plait.PlaitNotice, match=r"x.gguf: GGUF has no place for .* and \d+ more, which came along unused"
    ):
        plait.save(checkpoint, tmp_path / "x.gguf", dialect="gguf")
    theirs = reference.LlamaForCausalLM.from_pretrained(tmp_path / "alone").eval()
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        assert far(checkpoint.model(tokens), theirs(tokens).logits) < 1e-5


REFUSED = {
    "no head for LlavaForTokenClassification": {
        "model_type": "llava",
        "architectures": ["LlavaForTokenClassification"],
    },
    "multi-head latent attention": {
        "model_type": "llava",
        "text_config": {"model_type": "deepseek_v3", "kv_lora_rank": 8},
    },
    "weights quantised in this format": {"model_type": "llava", "quantization_config": {"quant_method": "awq"}},
    "images inside the decoder": {"model_type": "mllama", "text_config": {}, "vision_config": {}},
    "attention_bias: 3": {"model_type": "llava", "text_config": {"model_type": "gpt2", "attention_bias": 3}},
}


@pytest.mark.parametrize("part", REFUSED)
def test_what_is_refused(part: str) -> None:
    with pytest.raises(FamilyError, match=part):
        family_for(REFUSED[part]).architecture(REFUSED[part])


@pytest.mark.parametrize(
    ("config", "told", "untold"),
    [
        ({"model_type": "llava", "text_config": {"model_type": "gemma2"}}, "not capped", "not scaled"),
        ({"model_type": "llava", "text_config": {"model_type": "cohere"}}, "not scaled", "not capped"),
        ({"model_type": "gemma3"}, "read as its text model", "not capped"),  # it has no cap unless it is said
        ({"model_type": "gemma3", "text_config": {"final_logit_softcapping": 9.0}}, "not capped", "not scaled"),
        ({"model_type": "paligemma", "text_config": {"model_type": "gemma2"}}, "both directions", "not capped"),
    ],
)
def test_what_the_class_around_leaves_out_is_said(config: dict[str, Any], told: str, untold: str) -> None:
    family = family_for(config)
    said = family.said(config, 3)
    assert told in said and untold not in said
    assert (family.architecture(config).logit_softcap is None) == (config["model_type"] != "paligemma")


def test_a_wrapper_needs_something_to_wrap() -> None:
    family = family_for({"model_type": "llava"})
    with pytest.raises(FamilyError, match="llava wraps a text model, and there is nothing to wrap: write llama"):
        family.config(plait.preset("llama-7b"))
    told = family_for({"model_type": "llava"}).unread({"model_type": "llava", "text_config": {"frobnicate": 1}})
    assert told == ("text_config.frobnicate",)
