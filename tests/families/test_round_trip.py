"""Law 2 for every family: read all parameters, write them back, byte for byte, beside a config that says the same."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

from plait.architecture import EncoderDifferences
from plait.families import FAMILIES, FamilyError, family_for
from plait.parameters import parameters
from plait.presets import PRESETS, preset
from tests.families.making import answer, build, checkpoint, opened, read, write
from tests.families.recipes import RECIPES
from tests.models import far, shallow

ALL = pytest.mark.parametrize("recipe", RECIPES)
HALF = pytest.mark.parametrize(  # the others where there is time
    "recipe", [pytest.param(name, marks=[pytest.mark.slow] if i % 2 else []) for i, name in enumerate(RECIPES)]
)


def test_every_family_has_a_recipe(reference: ModuleType) -> None:
    tried = {getattr(reference, recipe.config).model_type for recipe in RECIPES.values()}
    known = reference.CONFIG_MAPPING.keys()  # RefinedWeb, say, is Falcon's name before the library had it
    assert tried == {name for family in FAMILIES for name in family.model_types if name in known}


@ALL
def test_read_and_written_back(recipe: str, reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, recipe, tmp_path)
    family, architecture, binding = opened(config, stored)
    ours = {name: binding.read(name, stored.__getitem__) for name in binding.entries}

    assert {name: tuple(t.shape) for name, t in ours.items()} == parameters(architecture)
    written = dict(family.export(architecture, ours.__getitem__, binding.layout))
    assert written.keys() | set(binding.layout.leftovers) == stored.keys()
    for name, tensor in written.items():
        assert tensor.dtype == stored[name].dtype and torch.equal(tensor, stored[name]), name
    assert not family.unread(config)
    if recipe != "gemma-untied":  # there the flag was wrong: test_tying
        assert family.config(architecture, config) == config


@HALF
def test_written_without_the_config_it_came_from(recipe: str, reference: ModuleType, tmp_path: Path) -> None:
    """The config is made from the architecture alone, and the reference library computes the same with it."""
    model, config, stored = checkpoint(reference, recipe, tmp_path / "before")
    family, architecture, binding = opened(config, stored)
    ours = {name: binding.read(name, stored.__getitem__) for name in binding.entries}
    fresh = family.config(
        architecture, {k: v for k, v in config.items() if k.endswith("token_id")} | {"model_type": ""}
    )
    assert family.architecture(fresh, stored, lambda a, b: False) == architecture
    write(tmp_path / "after", fresh, dict(family.export(architecture, ours.__getitem__)))

    cls = getattr(reference, fresh["architectures"][0])
    again, info = cls.from_pretrained(tmp_path / "after", output_loading_info=True)
    aside = {name for name in info["missing_keys"] if name.removeprefix(family.prefix) in binding.layout.leftovers}
    aside |= {name for name in info["missing_keys"] if name in binding.layout.leftovers or "pooler" in name}
    assert set(info["missing_keys"]) <= aside and not info["unexpected_keys"] and not info["mismatched_keys"]
    tokens = torch.tensor([[4, 9, 31, 7, 22, 50, 13, 8, 44, 5]])
    inputs = {"input_ids": tokens} if architecture.kind != "encoder-decoder" else {}
    if not inputs:
        inputs = {"input_ids": tokens.flip(1), "decoder_input_ids": tokens}
    # a mapped tensor may lie unaligned, where the kernels sum in another order
    assert far(answer(again.eval(), inputs), answer(model, inputs)) < 1e-6


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_said_by_the_families_they_belong_to(name: str) -> None:
    said = []
    for family in FAMILIES:
        try:
            config = family.config(shallow(preset(name)))
        except FamilyError:
            continue
        said.append(family.name)
        assert family_for(config) is family
    assert bool(said) != name.startswith("vaswani")


def test_the_reference_library_accepts_every_config(reference: ModuleType, tmp_path: Path) -> None:
    """Written for an architecture that was never loaded: no type is refused, and every shape is the one we name."""
    for name in ("llama-3.2-1b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-2b", "gemma-2-2b", "gemma-3-270m",
                 "olmo-1b", "olmo-2-7b", "olmo-3-7b", "command-r7b", "granite-3-2b", "smollm3-3b", "glm-4-9b",
                 "cwm-32b", "gpt2", "pythia-70m", "bert-base", "roberta-base", "t5-small", "t5-v1.1-small", "bart-base",
                 "marian-en-de"):  # fmt: skip
        architecture = preset(name)
        family = next(f for f in FAMILIES if _says(f, architecture))
        config = family.config(architecture)
        write(tmp_path / name, config, {"unused": torch.zeros(1)})
        with torch.device("meta"):
            loaded = reference.AutoConfig.from_pretrained(tmp_path / name)
            model = getattr(reference, config["architectures"][0])._from_config(loaded)
        shapes = {n: tuple(t.shape) for n, t in model.state_dict().items()}
        with torch.device("meta"):
            ours = {n: torch.empty(shape) for n, shape in parameters(architecture).items()}
        written = {n: tuple(t.shape) for n, t in family.export(architecture, ours.__getitem__)}
        renamed = {"embed_out.weight": "lm_head.weight"}
        assert {renamed.get(n, n): s for n, s in written.items()}.items() <= shapes.items(), name


def _says(family, architecture) -> bool:
    try:
        return bool(family.config(architecture))
    except FamilyError:
        return False


def test_two_families_that_say_the_same(reference: ModuleType, tmp_path: Path) -> None:
    """Llama's weights under Mistral's config, and back."""
    model, config, stored = checkpoint(reference, "llama", tmp_path / "llama")
    llama, architecture, binding = opened(config, stored)
    mistral = next(family for family in FAMILIES if family.name == "mistral")
    ours = {name: binding.read(name, stored.__getitem__) for name in binding.entries}
    write(tmp_path / "mistral", mistral.config(architecture, config), dict(mistral.export(architecture, ours.get)))
    again = reference.MistralForCausalLM.from_pretrained(tmp_path / "mistral").eval()
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, model(tokens).logits)
    config, stored = read(tmp_path / "mistral")
    assert config["pad_token_id"] == 0 and config["eos_token_id"] == 2  # ids go along
    family, back, _ = opened(config, stored)
    assert family is mistral and back == architecture
    assert llama.config(back, config)["model_type"] == "llama"


def test_what_a_family_cannot_say_is_named() -> None:
    named = {family.name: family for family in FAMILIES}
    with pytest.raises(FamilyError, match="llama cannot say layer_types"):
        named["llama"].config(preset("mistral-7b"))
    with pytest.raises(FamilyError, match="qkv_bias and output_bias with one setting, attention_bias"):
        named["llama"].config(preset("llama-7b").replace(qkv_bias=True))
    with pytest.raises(FamilyError, match="gpt2 cannot say norm 'rmsnorm'"):
        named["gpt2"].config(preset("gpt2").replace(norm="rmsnorm"))
    with pytest.raises(FamilyError, match="gemma cannot say norm_weight 'plain'"):
        named["gemma"].config(preset("gemma-2b").replace(norm_weight="plain"))
    with pytest.raises(FamilyError, match="gpt2 has no tensor for decoder.layers.0.attention.query_norm.weight"):
        named["gpt2"].config(preset("gpt2").replace(qk_norm="head"))
    with pytest.raises(FamilyError, match="roberta|position_offset"):
        named["roberta"].config(preset("bert-base"))
    two = EncoderDifferences(vocab_size=preset("bart-base").vocab_size)
    with pytest.raises(FamilyError, match="bart has one table where its head is tied"):
        named["bart"].config(preset("bart-base").replace(encoder=two))
    with pytest.raises(FamilyError, match="gemma2 cannot say attention_scale 0.6"):
        named["gemma2"].config(preset("gemma-2-2b").replace(attention_scale=0.6))


def test_the_reference_model_of_a_recipe_is_the_same_each_time(reference: ModuleType) -> None:
    first, second = build(reference, "bart"), build(reference, "bart")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert first.final_logits_bias.abs().min() > 0
