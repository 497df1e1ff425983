"""Early decoders as their publishers wrote them: older names of settings, tensors left over, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from plait.architecture import Alibi, Architecture
from plait.families import FamilyError, family_for
from tests.families.making import checkpoint, opened


def read(**config: Any) -> Architecture:
    return family_for(config).architecture(config)


OLDER = {
    "7b": (
        {"model_type": "RefinedWebModel", "n_head": 71, "n_layer": 32, "hidden_size": 4544, "multi_query": True}
        | {"parallel_attn": True, "alibi": False, "bias": False, "apply_residual_connection_post_layernorm": False},
        {"model_type": "falcon"},
    ),
    "40b": (
        {"model_type": "RefinedWeb", "n_head": 128, "n_head_kv": 8, "n_layer": 60, "hidden_size": 8192}
        | {"parallel_attn": True, "alibi": False, "bias": False, "architectures": ["RWForCausalLM"]},
        {"model_type": "falcon", "new_decoder_architecture": True, "num_attention_heads": 128, "num_kv_heads": 8}
        | {"num_hidden_layers": 60, "hidden_size": 8192},
    ),
    "rw-1b": (
        {"model_type": "RefinedWeb", "n_head": 32, "n_layer": 24, "hidden_size": 2048, "alibi": True, "bias": True},
        {"model_type": "falcon", "num_attention_heads": 32, "num_hidden_layers": 24, "hidden_size": 2048}
        | {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
    ),
}


@pytest.mark.parametrize("size", OLDER)
def test_falcon_by_its_first_names(size: str) -> None:
    older, newer = OLDER[size]
    assert read(**older) == read(**newer)
    assert not family_for(older).unread(older)


def test_falcons_layouts() -> None:
    falcon = {"model_type": "falcon", "num_attention_heads": 8, "hidden_size": 64}
    shapes = {
        (): (1, "shared"),
        ("parallel_attn",): (1, "none"),
        ("multi_query",): (8, "shared"),
    }
    for off, expected in shapes.items():
        a = read(**falcon, **dict.fromkeys(off, False))
        assert (a.n_kv_heads, a.parallel) == expected
    new = falcon | {"new_decoder_architecture": True, "multi_query": True}  # which the newer layout does not read
    assert (read(**new).n_kv_heads, read(**new).parallel) == (8, "separate")
    one = read(**new, num_kv_heads=2, num_ln_in_parallel_attn=1)
    assert (one.n_kv_heads, one.parallel) == (2, "shared")
    assert read(**falcon, alibi=True).alibi == Alibi(scaled=True, rounded=True) and read(**falcon).alibi is None


LEFT = {
    "openai-gpt": ("h.0.attn.bias",),
    "gpt_neo": ("transformer.h.1.attn.attention.bias", "transformer.h.1.attn.attention.masked_bias"),
    "gptj": ("transformer.h.2.attn.bias", "transformer.h.2.attn.masked_bias"),
    "falcon-7b": ("transformer.h.0.self_attention.rotary_emb.inv_freq",),
    "xglm": ("model.embed_positions.weights",),
    "phi": ("model.layers.0.self_attn.rotary_emb.inv_freq",),
    "persimmon": ("model.layers.0.self_attn.rotary_emb.inv_freq",),
}


@pytest.mark.parametrize("recipe", LEFT)
def test_buffers_of_older_files_are_kept_aside(recipe: str, reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, recipe, tmp_path)
    stored = stored | {name: torch.zeros(2) for name in LEFT[recipe]}
    if recipe == "openai-gpt":  # published without the prefix
        stored = {name.removeprefix("transformer."): tensor for name, tensor in stored.items()}
    *_, binding = opened(config, stored)
    assert set(binding.layout.leftovers) == set(LEFT[recipe])
    with pytest.raises(FamilyError, match="has no place for 1 tensors"):
        opened(config, stored | {LEFT[recipe][0] + "es": torch.zeros(2)})


def test_bloom_is_published_without_a_prefix(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "bloom", tmp_path)
    bare = {name.removeprefix("transformer."): tensor for name, tensor in stored.items()}
    older = {k: v for k, v in config.items() if k not in ("hidden_size", "n_head")}
    older |= {"n_embed": 48, "num_attention_heads": 6, "n_inner": None, "offset_alibi": 100, "seq_length": 2048}
    _, architecture, binding = opened(older, bare)
    assert architecture == opened(config, stored)[1]
    key = "decoder.layers.1.attention.key.bias"
    assert torch.equal(
        binding.read(key, bare.__getitem__), bare["h.1.self_attention.query_key_value.bias"].view(6, 3, 8)[:, 1].ravel()
    )


REFUSED = [
    ("word_embed_proj_dim: 512 asks for a projection", {"model_type": "opt", "word_embed_proj_dim": 512}),
    ("a residual taken from", {"model_type": "bloom", "apply_residual_connection_post_layernorm": True}),
    ("a residual taken from", {"model_type": "falcon", "apply_residual_connection_post_layernorm": True}),
    ("divided by the layer's number", {"model_type": "gpt_bigcode", "scale_attn_by_inverse_layer_idx": True}),
    ("'codegen' asks for queries, values and keys in four blocks", {"model_type": "codegen"}),
    ("pad_token_id: xglm zeroes the sinusoids in row 5", {"model_type": "xglm", "pad_token_id": 5}),
    ("attention_types: 24 types for 3 layers", {"model_type": "gpt_neo", "num_layers": 3}),
    ("attention_types: plait has no 'banded'", {"model_type": "gpt_neo", "attention_types": [[["banded"], 24]]}),
    ("plait has no activation 'gelu_fast'", {"model_type": "openai-gpt", "afn": "gelu_fast"}),
]  # fmt: skip


@pytest.mark.parametrize(("match", "config"), REFUSED)
def test_what_is_refused_by_name(match: str, config: dict[str, Any]) -> None:
    with pytest.raises(FamilyError, match=match):
        read(**config)


def test_gpt_1_calls_the_tanh_form_gelu() -> None:
    assert read(model_type="openai-gpt").activation == "gelu_tanh" != read(model_type="mpt").activation


def test_mpt_keeps_its_attention_in_a_table() -> None:
    a = read(model_type="mpt", attn_config={"clip_qkv": 6, "softmax_scale": 0.5, "attn_impl": "triton", "alibi": True})
    assert (a.qkv_clip, a.attention_scale) == (6, 0.5)
    assert (read(model_type="mpt").qkv_clip, read(model_type="mpt").attention_scale) == (None, 128**-0.5)
    assert read(model_type="mpt", attn_config={"clip_qkv": 0}).qkv_clip is None
