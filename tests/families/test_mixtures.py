"""Families with experts as the hub has them: published configs, layers that predict further tokens, quantised files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import plait
from plait.architecture import Architecture, LayerType
from plait.checkpoint.notice import PlaitNotice
from plait.families import FAMILIES, FamilyError, family_for
from tests.families.making import build, checkpoint, opened, read, write
from tests.families.published import PUBLISHED
from tests.families.recipes import RECIPES
from tests.families.recipes.mixtures import RECIPES as MIXTURES
from tests.models import far


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs(name: str, reference: ModuleType) -> None:
    """Read as the reference library's class reads them, every setting known, and written as they were."""
    config, experts, n_dense = PUBLISHED[name]
    family = family_for(config)
    architecture = family.architecture(config)
    assert architecture.experts == experts
    layers = architecture.tower("decoder").layers
    assert [layer.sparse for layer in layers] == [False] * n_dense + [True] * (len(layers) - n_dense)
    assert not family.unread(config)
    assert family.config(architecture, config) == config
    theirs = reference.AutoConfig.for_model(**config).to_dict()
    assert family.architecture(theirs | {"architectures": config["architectures"]}) == architecture


def test_what_sets_the_published_ones_apart() -> None:
    def found(name: str) -> Architecture:
        return family_for(PUBLISHED[name][0]).architecture(PUBLISHED[name][0])

    oss = found("gpt-oss-20b")
    assert (oss.glu_limit, oss.glu_offset, oss.activation, oss.attention_sinks) == (7.0, 1.0, "quick_gelu", True)
    assert [layer.window for layer in oss.tower("decoder").layers[:3]] == [128, None, 128]
    assert oss.rope is not None and oss.rope.scaling is not None and oss.rope.scaling.truncate is False
    hunyuan = found("hunyuan-a13b").rope
    assert hunyuan is not None and hunyuan.scaling is None and round(hunyuan.theta) == 11158840
    turned = {name: found(name).rope for name in ("minimax-m2", "glm-4.5", "mixtral-8x7b")}
    assert [rope.dim for rope in turned.values() if rope] == [64, 64, None]


def few_layers(kind: str, n_layers: int) -> dict[str, Any]:
    config = {"model_type": kind, "num_hidden_layers": n_layers, "head_dim": 64, "vocab_size": 50}
    return config | ({"n_routed_experts": 8, "num_experts_per_tok": 2} if kind == "dots1" else {})


def sparse(kind: str, n_layers: int, **settings: Any) -> list[bool]:
    config = few_layers(kind, n_layers) | settings
    return [layer.sparse for layer in family_for(config).architecture(config).tower("decoder").layers]


def test_which_layers_have_experts() -> None:
    assert sparse("qwen3_moe", 5, decoder_sparse_step=2) == [False, True, False, True, False]
    assert sparse("qwen3_moe", 4, decoder_sparse_step=2, mlp_only_layers=[3]) == [False, True, False, False]
    assert sparse("glm4_moe", 3) == [False, True, True] and sparse("dots1", 3) == [True] * 3
    assert sparse("dots1", 3, first_k_dense_replace=2) == [False, False, True]
    assert sparse("exaone_moe", 3) == sparse("exaone_moe", 3, is_moe_layer=[0, 1, 1]) == [False, True, True]
    listed = {"mlp_layer_types": ["sparse", "dense", "sparse"], "first_k_dense_replace": 3}
    assert sparse("exaone_moe", 3, **listed) == [True, False, True] and sparse("solar_open", 2) == [True] * 2
    for wrong in ({"mlp_layer_types": ["sparse"]}, {"mlp_layer_types": ["thin"] * 3}, {"is_moe_layer": [1, 1, 1]}):
        with pytest.raises(FamilyError, match=next(iter(wrong))):
            sparse("exaone_moe", 3, **wrong)
    with pytest.raises(FamilyError, match="first_k_dense_replace: 1"):
        sparse("solar_open", 3, first_k_dense_replace=1)
    assert sparse("ernie4_5_moe", 4) == [False, True, True, True]
    every_third = {"moe_layer_start_index": 1, "moe_layer_end_index": 6, "moe_layer_interval": 3}
    assert sparse("ernie4_5_moe", 9, **every_third) == [i in (2, 5) for i in range(9)]
    assert sparse("ernie4_5_moe", 4, **dict.fromkeys(every_third)) == [False, True, True, True]  # null is the default
    assert sparse("qwen2_moe", 3, num_experts=0) == [False] * 3  # then it has none at all


@pytest.mark.parametrize("kind", ["glm4_moe", "dots1", "exaone_moe", "ernie4_5_moe", "qwen2_moe", "qwen3_moe"])
def test_layers_without_experts_are_written_or_refused(kind: str) -> None:
    family = family_for({"model_type": kind})
    architecture = family.architecture(few_layers(kind, 5))
    for dense in ((), (0,), (0, 1), (2,), (0, 2, 4), (0, 1, 3)):
        types = architecture.layer_types or (LayerType(),)
        types = tuple(dataclasses.replace(types[i % len(types)], sparse=i not in dense) for i in range(5))
        ours = architecture.replace(layer_types=types)
        leading = dense == tuple(range(len(dense)))
        if kind.startswith(("qwen", "exaone")) or leading or (kind == "ernie4_5_moe" and dense == (0, 2, 4)):
            layers = family.architecture(family.config(ours)).tower("decoder").layers
            assert [i for i, layer in enumerate(layers) if not layer.sparse] == list(dense)
        else:
            with pytest.raises(FamilyError, match=r"layer_types.sparse"):
                family.config(ours)


def test_what_a_family_with_experts_cannot_say_is_named() -> None:
    named = {family.name: family for family in FAMILIES}
    ours = family_for(PUBLISHED["mixtral-8x7b"][0]).architecture(PUBLISHED["mixtral-8x7b"][0])
    assert ours.experts is not None
    with pytest.raises(FamilyError, match="llama has no tensor for decoder.layers.0.ffn.router.weight"):
        named["llama"].config(ours)
    with pytest.raises(FamilyError, match="olmoe"):
        named["olmoe"].config(ours)
    with pytest.raises(FamilyError, match="experts.d_shared: 100 is no multiple of experts.d_expert, 1536"):
        glm = family_for(PUBLISHED["glm-4.5"][0]).architecture(PUBLISHED["glm-4.5"][0])
        assert glm.experts is not None
        named["glm4_moe"].config(glm.replace(experts=dataclasses.replace(glm.experts, d_shared=100)))
    other = named["qwen3_moe"].config(ours.replace(qk_norm="head"))
    assert other["num_local_experts"] == 8 and other["norm_topk_prob"] is True


def test_an_expert_that_is_missing_or_too_many_is_named(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "mixtral", tmp_path)
    name = "model.layers.1.block_sparse_moe.experts.%d.w3.weight"
    with pytest.raises(FamilyError, match=r"1 parameters .*ffn.experts.up.weight \(.*layers.1.*experts.4.w3.weight\)"):
        opened(config, {n: t for n, t in stored.items() if n != name % 4})
    with pytest.raises(FamilyError, match=r"no place for 1 tensors in the file: .*experts.7.w3.weight"):
        opened(config, stored | {name % 7: stored[name % 6]})
    with pytest.raises(FamilyError, match=r"experts.6.w3.weight: its shape is \(48, 44\); .* needs \(44, 48\)"):
        wrong = stored | {name % 6: stored[name % 6].t()}
        opened(config, wrong)[2].read("decoder.layers.1.ffn.experts.up.weight", wrong.__getitem__)


@pytest.mark.parametrize("recipe", [name for name, made in MIXTURES.items() if "listed" not in name])
def test_experts_of_a_layer_in_one_tensor(recipe: str, reference: ModuleType, tmp_path: Path) -> None:
    """As the reference's classes hold them in memory, and write them when told so."""
    model = build(reference, recipe)
    model.save_pretrained(tmp_path / "alone")
    model.save_pretrained(tmp_path / "together", save_original_format=False)
    config, stored = read(tmp_path / "together")
    assert any(name.endswith(".experts.gate_up_proj") for name in stored)
    binding = opened(config, stored)[2]
    config, alone = read(tmp_path / "alone")
    same = opened(config, alone)[2]
    assert binding.layout.together == (stored.keys() != alone.keys()) and binding.entries.keys() == same.entries.keys()
    for name in binding.entries:
        assert torch.equal(binding.read(name, stored.__getitem__), same.read(name, alone.__getitem__)), name
    plait.save(plait.load(tmp_path / "together"), tmp_path / "after")
    _, again = read(tmp_path / "after")
    assert again.keys() == stored.keys() and all(torch.equal(again[name], stored[name]) for name in stored)


def further(stored: dict[str, Tensor], start: str, names: list[str]) -> dict[str, Tensor]:
    return stored | {start + name: torch.ones(3) for name in names}


@pytest.mark.parametrize("recipe", ["glm4_moe", "ernie4_5_moe", "exaone_moe"])
def test_layers_that_predict_further_tokens_are_kept_aside(recipe: str, reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, recipe, tmp_path / "before")
    own = ["input_layernorm.weight", "mlp.gate.weight", "mlp.experts.0.up_proj.weight", "self_attn.q_proj.bias"]
    if recipe == "glm4_moe":
        whole = further(stored, "model.layers.3.", [*own, "eh_proj.weight", "enorm.weight", "shared_head.head.weight"])
        with pytest.raises(FamilyError, match="no place for 4 tensors"):  # a layer too many is another thing
            opened(config, further(stored, "model.layers.3.", own))
        with pytest.raises(FamilyError, match="no place for"):
            opened(config, whole | {"model.layers.30.eh_proj.weight": torch.ones(3)})
    elif recipe == "exaone_moe":
        whole = further(stored, "mtp.layers.0.", own) | {"mtp.fc.weight": torch.ones(3)}
    else:
        whole = further(stored, "model.mtp_block.0.", own) | {"model.mtp_linear_proj.0.weight": torch.ones(3)}
    assert set(opened(config, whole)[2].layout.leftovers) == whole.keys() - stored.keys()
    write(tmp_path / "whole", config, whole)
    plait.save(plait.load(tmp_path / "whole"), tmp_path / "after")
    _, again = read(tmp_path / "after")
    assert again.keys() == whole.keys() and all(torch.equal(again[name], whole[name]) for name in whole)


def test_a_router_in_float32_beside_bfloat16(reference: ModuleType, tmp_path: Path) -> None:
    """As GLM-4.5 and ERNIE are published: each tensor goes back in the type it had."""
    _, config, stored = checkpoint(reference, "ernie4_5_moe", tmp_path / "before")
    wide = ("mlp.gate.weight", "e_score_correction_bias")
    mixed = {name: t if name.endswith(wide) else t.bfloat16() for name, t in stored.items()}
    write(tmp_path / "mixed", config, mixed)
    loaded = plait.load(tmp_path / "mixed")
    for name, tensor in loaded.model.state_dict().items():
        assert tensor.dtype == (torch.float32 if ".ffn.router." in name else torch.bfloat16), name
    plait.save(loaded, tmp_path / "after")
    _, again = read(tmp_path / "after")
    assert again.keys() == mixed.keys()
    assert all(again[name].dtype == t.dtype and torch.equal(again[name], t) for name, t in mixed.items())


def mxfp4(weight: Tensor, scale: int) -> tuple[Tensor, Tensor, Tensor]:
    """``(E, in, out)`` rounded to 4 bits times 2^(scale - 127): its blocks, its scales, and what they say."""
    levels = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    rows = weight.transpose(1, 2) / 2.0 ** (scale - 127)  # E out in
    nearest = (rows.abs().unsqueeze(-1) - levels).abs().argmin(-1)
    means = levels[nearest] * rows.sign() * 2.0 ** (scale - 127)
    codes = (nearest + 8 * (rows < 0)).to(torch.uint8)
    blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).unflatten(-1, (-1, 16))
    return blocks, torch.full(blocks.shape[:-1], scale, dtype=torch.uint8), means.transpose(1, 2)


def test_gpt_oss_as_it_is_published(reference: ModuleType, tmp_path: Path) -> None:
    """Experts in MXFP4, everything else in bfloat16: the reference's class with the same numbers says the same."""
    settings = RECIPES["gpt_oss"].settings | {"hidden_size": 64, "intermediate_size": 32}
    recipe = RECIPES["gpt_oss"].__class__("GptOssConfig", "GptOssForCausalLM", settings)
    model, config, stored = checkpoint(reference, recipe, tmp_path / "before")
    files, means = {}, {}
    for name, tensor in stored.items():
        means[name] = tensor.bfloat16().float()
        if name.endswith(("gate_up_proj", "down_proj")):
            files[f"{name}_blocks"], files[f"{name}_scales"], means[name] = mxfp4(tensor, 123)
        else:
            files[name] = tensor.bfloat16()
    quantised = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    write(tmp_path / "mxfp4", config | {"dtype": "bfloat16", "quantization_config": quantised}, files)
    with pytest.warns(PlaitNotice, match=r"quantised \(mxfp4\); they are read as bfloat16"):
        loaded = plait.load(tmp_path / "mxfp4")
    assert {p.dtype for p in loaded.model.parameters()} == {torch.bfloat16}
    model.load_state_dict(means)
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        assert far(loaded.model.float()(tokens), model(tokens).logits) < 1e-4

    with pytest.warns(PlaitNotice):
        loaded = plait.load(tmp_path / "mxfp4")
    with pytest.warns(PlaitNotice, match="weights that were mxfp4 are written as bfloat16"):
        plait.save(loaded, tmp_path / "after")
    written, again = read(tmp_path / "after")
    assert "quantization_config" not in written and again.keys() == stored.keys()
    assert all(t.dtype == torch.bfloat16 and torch.equal(t.float(), means[name]) for name, t in again.items())


def test_minimax_as_it_is_published(reference: ModuleType, tmp_path: Path) -> None:
    """Its experts in FP8, a scale for each block of each."""
    model, config, stored = checkpoint(reference, "minimax_m2-partial", tmp_path / "before")
    files, means = dict(stored), dict(stored)
    for name in (name for name in stored if ".experts." in name):
        scales = torch.rand(-(-stored[name].shape[0] // 16), -(-stored[name].shape[1] // 16)) / 50 + 1e-3
        spread = scales.repeat_interleave(16, 0).repeat_interleave(16, 1)[: len(stored[name]), : stored[name].shape[1]]
        files[name] = (stored[name] / spread).to(torch.float8_e4m3fn)
        files[f"{name}_scale_inv"], means[name] = scales, files[name].float() * spread
    said = {"quant_method": "fp8", "fmt": "float8_e4m3fn", "weight_block_size": [16, 16]}
    write(tmp_path / "fp8", config | {"quantization_config": said}, files)
    write(tmp_path / "plain", config, means)
    with pytest.warns(PlaitNotice, match=r"quantised \(fp8\)"):
        loaded = plait.load(tmp_path / "fp8")
    theirs = type(model).from_pretrained(tmp_path / "plain").eval()
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        assert far(loaded.model(tokens), theirs(tokens).logits) < 1e-4
    with pytest.warns(PlaitNotice):
        lazy = plait.load(tmp_path / "fp8", lazy=True).weights()
    name = "decoder.layers.1.ffn.experts.down.weight"
    assert lazy.blocks(name) is None and lazy.stored_type(name) == "F32"
    assert torch.equal(lazy.read(name), loaded.model.state_dict()[name])


def test_build_draws_every_recipe_with_experts_that_differ(reference: ModuleType) -> None:
    """Were the experts alike, a router that picks wrongly would not show."""
    model = build(reference, "ernie4_5_moe")
    bias = model.model.layers[1].mlp.gate.moe_statics.e_score_correction_bias
    assert bias.abs().max() > 0.1
    up = model.model.layers[1].mlp.experts.gate_up_proj
    assert (up[0] - up[1]).abs().max() > 0.1
