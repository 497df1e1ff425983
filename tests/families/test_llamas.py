"""Llama's line as it is published: names and settings of code that is not the reference library's, and refusals."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import plait
from plait.architecture import Architecture, LayerType, Rope, RopeScaling
from plait.families import FamilyError, family_for
from tests.families.making import checkpoint, opened, write
from tests.families.recipes.base import SMALL, without
from tests.models import far


def read(kind: str, **config: Any) -> Architecture:
    return family_for({"model_type": kind}).architecture({"model_type": kind, **config})


def layers(kind: str, **config: Any) -> list[tuple[int | None, bool]]:
    """For each layer its window, and whether it turns."""
    return [(layer.window, layer.rope is not None) for layer in read(kind, **config).tower("decoder").layers]


PUBLISHED = {
    "phi3": {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attention_bias": False, "mlp_bias": False, "lm_head_bias": False,
             "full_attn_mod": 1, "interpolate_factor": 1, "rope_scaling": None, "sliding_window": 262144},
    "olmo": {"clip_qkv": None, "rope_theta": 10000.0, "pretraining_tp": 1},
    "exaone": {"activation_function": "silu", "embed_dropout": 0.0, "layer_norm_epsilon": 1e-5, "num_layers": 30,
               "architectures": ["ExaoneForCausalLM"], "auto_map": {"AutoConfig": "configuration_exaone.ExaoneConfig"}},
    "exaone4": {"sliding_window_pattern": "LLLG", "sliding_window": 4096, "head_dim": 128},
    "cohere": {"model_max_length": 131072, "use_qk_norm": False, "pretraining_tp": 1},
    "cohere2": {"head_dim": 128, "layer_switch": 4, "order_of_interleaved_layers": "local_attn_first",
                "position_embedding_type": "rope_gptj", "rotary_pct": 1.0, "use_embedding_sharing": True,
                "use_gated_activation": True, "use_parallel_block": True, "use_parallel_embedding": False,
                "use_qk_norm": False, "cache_implementation": "hybrid", "_sliding_window_pattern": 4},
    "granite": {"attention_multiplier": 0.015625, "rope_scaling": None},
    "smollm3": {"max_window_layers": 28, "no_rope_layer_interval": 4, "pretraining_tp": 2, "use_sliding_window": False},
    "ernie4_5": {"compression_ratio": 1.0, "use_flash_attention": False, "architectures": ["Ernie4_5_ForCausalLM"]},
    "hunyuan_v1_dense": {"attention_head_dim": 128, "cla_share_factor": 2, "use_cla": False, "use_qk_norm": True,
                         "norm_type": "rms", "use_rotary_pos_emb": True, "position_embedding_xdrope": False,
                         "add_classification_head": False, "dense_list": [4096, 0], "pool_type": "last",
                         "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1,
                                          "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}},
    "internlm2": {"bias": False, "attn_implementation": "eager", "rope_scaling": {"type": "dynamic", "factor": 2.0},
                  "architectures": ["InternLM2ForCausalLM"]},
    "internlm3": {"bias": False, "qkv_bias": False, "rope_scaling": {"rope_type": "dynamic", "factor": 6.0}},
    "seed_oss": {"residual_dropout": 0.1, "attention_out_bias": False},
}  # fmt: skip


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_configs_read_without_a_word(kind: str) -> None:
    config = {"model_type": kind, **PUBLISHED[kind]}
    family = family_for(config)
    family.architecture(config)
    assert family.unread(config) == ()


REFUSED = [
    ("cohere2", "use_parallel_block", False),
    ("cohere2", "use_gated_activation", False),
    ("cohere2", "use_qk_norm", True),
    ("cohere2", "order_of_interleaved_layers", "global_attn_first"),
    ("cohere2", "position_embedding_type", "rope_neox"),
    ("hunyuan_v1_dense", "use_qk_norm", False),
    ("hunyuan_v1_dense", "use_cla", True),
    ("hunyuan_v1_dense", "position_embedding_xdrope", True),
    ("phi3", "lm_head_bias", True),
    ("phi3", "full_attn_mod", 2),
    ("granite", "clip_qkv", 8.0),
    ("olmo2", "clip_qkv", 8.0),
    ("iquestcoder", "use_sliding_window", True),
    ("glm", "sliding_window", 4096),
]


@pytest.mark.parametrize(("kind", "setting", "value"), REFUSED)
def test_settings_that_would_change_the_model_are_refused(kind: str, setting: str, value: Any) -> None:
    with pytest.raises(FamilyError, match=f"^{setting}: {value!r} "):
        read(kind, **{setting: value})


# EXAONE 3 under the names of the library's own class, which the published files have not

CLASS_NAMES = {
    "transformer.wte.": "model.embed_tokens.",
    "transformer.h.": "model.layers.",
    "transformer.ln_f.": "model.norm.",
    ".attn.attention.out_proj.": ".self_attn.o_proj.",
    ".attn.attention.": ".self_attn.",
    ".ln_1.": ".input_layernorm.",
    ".ln_2.": ".post_attention_layernorm.",
    ".mlp.c_fc_0.": ".mlp.gate_proj.",
    ".mlp.c_fc_1.": ".mlp.up_proj.",
    ".mlp.c_proj.": ".mlp.down_proj.",
}


def as_class(name: str) -> str:
    for published, own in CLASS_NAMES.items():
        name = name.replace(published, own)
    return name


def test_exaone_has_two_sets_of_names(reference: ModuleType, tmp_path: Path) -> None:
    model, config, stored = checkpoint(reference, "exaone", tmp_path / "published")
    assert "transformer.h.2.mlp.c_fc_1.weight" in stored
    renamed = {as_class(name): tensor for name, tensor in stored.items()}
    assert "model.layers.2.mlp.up_proj.weight" in renamed and "model.embed_tokens.weight" in renamed
    renamed["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(5)
    write(tmp_path / "class", config, renamed)
    loaded = plait.load(tmp_path / "class")
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        assert far(loaded.model(tokens), model(tokens).logits) < 1e-4
    plait.save(loaded, tmp_path / "back")
    _, _, binding = opened(config, renamed)
    assert binding.layout.leftovers == ("model.layers.0.self_attn.rotary_emb.inv_freq",)
    again = plait.load(tmp_path / "back").layout
    assert again is not None and again.source is not None and set(again.source.names) == renamed.keys()
    with pytest.raises(FamilyError, match=r"no place for 1 tensors in the file: model.layers.3.mlp.up_proj.weight"):
        opened(config, {**renamed, "model.layers.3.mlp.up_proj.weight": torch.ones(44, 48)})


def test_exaone_configs_in_their_own_words(reference: ModuleType) -> None:
    usual = {"num_hidden_layers": 5, "rms_norm_eps": 1e-4, "hidden_act": "gelu"}
    own = {"num_layers": 5, "layer_norm_epsilon": 1e-4, "activation_function": "gelu"}
    assert read("exaone", **own) == read("exaone", **usual) != read("exaone")
    assert read("exaone", **own).norm_eps == reference.ExaoneConfig(**own).rms_norm_eps


# InternLM 2, which the library has not: Llama's weights, put together as its own code does


def fused(stored: dict[str, Tensor], heads: int, groups: int, d: int) -> dict[str, Tensor]:
    """Llama's tensors under InternLM 2's names."""
    plain = {
        "self_attn.o_proj": "attention.wo",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
        "embed_tokens": "tok_embeddings",
        "lm_head": "output",
    }
    found: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if "q_proj" in name:
            rows: list[Tensor] = []
            key, value = (stored[name.replace("q_proj", f"{one}_proj")] for one in "kv")
            per = heads // groups
            for g in range(groups):
                rows += [tensor[g * per * d : (g + 1) * per * d], key[g * d : (g + 1) * d], value[g * d : (g + 1) * d]]
            found[name.replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(rows)
        elif "k_proj" not in name and "v_proj" not in name:
            for theirs, own in plain.items():
                name = name.replace(theirs, own)
            found[name] = tensor
    return found


def test_internlm2_reads_what_its_own_code_wrote(reference: ModuleType, tmp_path: Path) -> None:
    settings = without(SMALL, "head_dim") | {"max_position_embeddings": 16}
    scaling = {"type": "dynamic", "factor": 2.0}
    torch.manual_seed(0)
    model = reference.LlamaForCausalLM(
        reference.LlamaConfig(**settings, attention_bias=True, rope_theta=500.0, rope_scaling=dict(scaling))
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    stored = fused(dict(model.state_dict()), 6, 3, 8)
    own = {"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"], "bias": True, "rope_theta": 500.0}
    write(tmp_path / "own", {**settings, **own, "rope_scaling": scaling}, stored)
    loaded = plait.load(tmp_path / "own")
    for length in (13, 29):
        tokens = torch.arange(4, 4 + length)[None]
        with torch.no_grad():
            assert far(loaded.model(tokens), model(tokens).logits) < 1e-4
    plait.save(loaded, tmp_path / "back")
    again = plait.load(tmp_path / "back")
    assert again.layout is not None and again.layout.source is not None
    assert all(torch.equal(again.layout.source.read(name), stored[name]) for name in stored)
    assert again.layout.config == loaded.layout.config


def test_internlm2_has_biases_unless_told() -> None:
    assert read("internlm2").qkv_bias and read("internlm2").output_bias and not read("internlm2").ffn_bias
    assert not read("internlm2", bias=False).qkv_bias and not read("internlm2", bias=False).output_bias
    one = read("internlm3", qkv_bias=True, bias=False)
    assert one.qkv_bias and not one.output_bias and not one.ffn_bias


# Rotations


def test_phi3_keeps_the_length_it_was_trained_on_at_the_top() -> None:
    lists = {"short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    for word in ("longrope", "su", "yarn"):  # what its first configs called the same
        a = read("phi3", max_position_embeddings=131072, rope_scaling={"type": word, **lists})
        assert a.rope is not None and a.rope.scaling is not None
        assert (a.rope.scaling.kind, a.rope.scaling.original_max_length, a.rope.scaling.factor) == (
            "longrope",
            4096,
            32,
        )
    nested = {"rope_type": "longrope", "original_max_position_embeddings": 16, **lists}
    above = {"rope_parameters": nested, "original_max_position_embeddings": 1024}
    a = read("phi3", **above)
    assert a.rope is not None and a.rope.scaling is not None and a.rope.scaling.original_max_length == 1024
    written = family_for({"model_type": "phi3"}).config(a)
    assert written["original_max_position_embeddings"] == 1024
    mini = read("phi3", hidden_size=3072, num_attention_heads=24, partial_rotary_factor=0.75, rope_scaling=None)
    assert mini.rope == Rope(dim=96)


def test_cwm_scales_unless_told_otherwise(reference: ModuleType) -> None:
    scaling = RopeScaling(kind="llama3", factor=16.0, original_max_length=8192)
    assert read("cwm").rope == Rope(theta=1e6, scaling=scaling)
    assert read("cwm", rope_theta=5e5).rope == Rope(theta=5e5, scaling=scaling)
    assert read("cwm", rope_parameters={"rope_type": "default", "rope_theta": 5e5}).rope == Rope(theta=5e5)
    told = reference.CwmConfig(rope_parameters={"rope_type": "default", "rope_theta": 5e5}).to_dict()
    assert read("cwm", **told).rope == Rope(theta=5e5)


def test_olmo3_scales_its_full_layers_alone() -> None:
    yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
    a = read("olmo3", rope_theta=3e5, rope_scaling=yarn, sliding_window=7, num_hidden_layers=8)
    assert [layer.window for layer in a.tower("decoder").layers] == [7, 7, 7, None] * 2
    sliding, full = a.tower("decoder").layers[0].rope, a.tower("decoder").layers[3].rope
    assert sliding == Rope(theta=3e5) and full is not None and full.scaling is not None and full.theta == 3e5
    assert read("olmo3", rope_theta=3e5).layer_types == (*[LayerType(window=4096)] * 3, LayerType())


def test_hunyuans_alpha_is_another_theta(reference: ModuleType) -> None:
    table = {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "rope_theta": 1e4}
    sizes = {"hidden_size": 96, "num_attention_heads": 6, "head_dim": 16, "max_position_embeddings": 32}
    a = read("hunyuan_v1_dense", **sizes, rope_parameters=table)
    config = reference.HunYuanDenseV1Config(**sizes, rope_parameters=dict(table))
    compute = reference.models.hunyuan_v1_dense.modeling_hunyuan_v1_dense.HunYuanDenseV1RotaryEmbedding
    from plait.model.position import inverse_frequencies

    assert a.rope is not None and a.rope.scaling is None and a.max_length is None  # made for longer rows than 32
    theirs, factor = compute.compute_ntk_alpha_rope_parameters(config)
    assert torch.equal(inverse_frequencies(a.rope, 16, torch.tensor([99]))[0], theirs) and factor == 1.0
    plain = read("hunyuan_v1_dense", **sizes, rope_parameters={**table, "alpha": None})
    assert plain.rope is not None and plain.rope.scaling is not None and plain.rope.scaling.kind == "dynamic"
    assert read("hunyuan_v1_dense", **sizes, rope_parameters={**table, "alpha": 1.0}).rope == Rope(theta=1e4)


# Layers without rotation


def test_layers_without_rotation() -> None:
    four = {"num_hidden_layers": 4}
    assert layers("cohere2", **four) == [(4096, True)] * 3 + [(None, False)]
    assert layers("cohere2", **four, sliding_window_pattern=2) == [(4096, True), (None, False)] * 2
    assert layers("exaone4", **four) == [(4096, True)] * 3 + [(None, False)]
    assert layers("exaone4", **four, sliding_window=None) == [(None, True)] * 4
    assert layers("exaone4", **four, sliding_window_pattern="LG") == [(4096, True), (None, False)] * 2
    assert layers("exaone4", **four, sliding_window_pattern="L") == [(4096, True)] * 3 + [(None, False)]  # the last
    assert layers("smollm3", **four) == [(None, True)] * 3 + [(None, False)]
    assert layers("smollm3", **four, no_rope_layer_interval=2) == [(None, True), (None, False)] * 2
    assert layers("smollm3", **four, no_rope_layers=[0, 1, 1, 0]) == [
        (None, turns) for turns in (False, True, True, False)
    ]
    windows = {"use_sliding_window": True, "sliding_window": 9}
    assert layers("smollm3", **four, **windows) == [(None, True)] * 3 + [(9, False)]
    with pytest.raises(FamilyError, match="no_rope_layers: 2 values, none for layer 2; there must be one for each"):
        read("smollm3", **four, no_rope_layers=[1, 0])


def test_what_cohere2_and_exaone4_cannot_say() -> None:
    some = (LayerType(), LayerType(rope=None))
    for kind, types in (("cohere2", ()), ("cohere2", some), ("exaone4", some)):
        with pytest.raises(FamilyError, match=f"{kind} cannot say layer_types"):
            family_for({"model_type": kind}).config(read(kind).replace(layer_types=types))
    smollm3 = family_for({"model_type": "smollm3"})
    with pytest.raises(FamilyError, match="layer_types.window: this family has one width"):
        smollm3.config(read("smollm3").replace(layer_types=(LayerType(window=3), LayerType(window=4))))
