"""One architecture, however its config spells it: versions 4 and 5, nulls, and what a class takes by default."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from plait.architecture import Architecture, LayerType, Rope
from plait.families import FAMILIES, FamilyError, family_for
from tests.families.recipes import RECIPES


def read(config: dict[str, Any]) -> Architecture:
    return family_for(config).architecture(config)


def config_of(reference: ModuleType, recipe: str) -> dict[str, Any]:
    made = RECIPES[recipe]
    config = getattr(reference, made.config)(**made.settings).to_dict()
    return config | {"architectures": [made.model]}


def version4(config: dict[str, Any], listed: bool = False) -> dict[str, Any]:
    """The same config as transformers 4 wrote it; ``listed``: with ``layer_types``, as late ones did."""
    gone = ("rope_parameters", "dtype") if listed else ("rope_parameters", "dtype", "layer_types")
    old = {k: v for k, v in config.items() if k not in gone}
    old |= {"torch_dtype": "float32", "transformers_version": "4.40.0"}
    table = config.get("rope_parameters")
    if table is None:
        return old
    if "full_attention" in table:
        full, local = dict(table["full_attention"]), table["sliding_attention"]
        if config["model_type"].startswith("modernbert"):
            thetas = {"global_rope_theta": full["rope_theta"], "local_rope_theta": local["rope_theta"]}
            return old | thetas | {"global_attn_every_n_layers": 3}
        old |= {"rope_theta": full.pop("rope_theta"), "rope_scaling": full}
        if config["model_type"] == "gemma3_text":
            old |= {"rope_local_base_freq": local["rope_theta"], "sliding_window_pattern": 6}
        return old
    table = dict(table)
    neox = config["model_type"] == "gpt_neox"
    old["rotary_emb_base" if neox else "rope_theta"] = table.pop("rope_theta")
    if "partial_rotary_factor" in table:
        old["rotary_pct" if neox else "partial_rotary_factor"] = table.pop("partial_rotary_factor")
    if table["rope_type"] != "default":
        old["rope_scaling"] = {"type": table.pop("rope_type"), **table}
    else:
        old["rope_scaling"] = None
    return old


@pytest.mark.parametrize("recipe", RECIPES)
def test_version_4_reads_as_version_5(recipe: str, reference: ModuleType) -> None:
    new = config_of(reference, recipe)
    old = version4(new, listed="layer_types" in RECIPES[recipe].settings)
    assert old != new and read(old) == read(new)
    assert not family_for(old).unread(old)
    if "rope_scaling" in old and old["rope_scaling"]:
        renamed = dict(old["rope_scaling"])
        renamed["rope_type"] = renamed.pop("type", None) or renamed["rope_type"]
        assert read(old | {"rope_scaling": renamed}) == read(new)
        assert read(old | {"rope_scaling": renamed | {"type": "nonsense"}}) == read(new)  # rope_type wins


# What a class needs to be told to describe a Transformer: half of GLM-4.5's 42 dimensions cannot be paired
BESIDE = {"glm4_moe": {"head_dim": 128}}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_class_defaults(family, reference: ModuleType) -> None:
    """A config that says nothing is the class's own; one that says everything is equal to it."""
    if family.model_types[0] not in reference.CONFIG_MAPPING:
        pytest.skip("the library has no such class")
    beside = BESIDE.get(family.name, {})
    cls = reference.AutoConfig.for_model(family.model_types[0], **beside)
    full = cls.to_dict()
    empty = {"model_type": family.model_types[0], **beside}
    assert read(full) == read(empty)
    assert not family.unread(full)
    for name in family.keys & full.keys():
        if name not in ("rope_parameters", "model_type", *beside):
            assert read({k: v for k, v in full.items() if k != name}) == read(full), name


NULLS = {
    "llama": {"num_key_value_heads": None, "head_dim": None, "rope_scaling": None},
    "mistral": {"head_dim": None, "sliding_window": None},
    "qwen2": {"num_key_value_heads": None, "sliding_window": None, "layer_types": None},
    "gpt2": {"n_inner": None},
    "t5": {"num_decoder_layers": None},
    "gemma2": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
}


@pytest.mark.parametrize("kind", NULLS)
def test_null_is_what_the_class_makes_of_it(kind: str, reference: ModuleType) -> None:
    ours = read({"model_type": kind, **NULLS[kind]})
    assert ours == read(reference.AutoConfig.for_model(kind, **NULLS[kind]).to_dict())
    expected = {
        "llama": ("n_kv_heads", 32),
        "mistral": ("layer_types", ()),
        "qwen2": ("n_kv_heads", 32),
        "gpt2": ("d_ff", 3072),
        "t5": ("n_decoder_layers", 6),
        "gemma2": ("attention_softcap", None),
    }[kind]
    assert getattr(ours, expected[0]) == expected[1]


def test_synonyms_of_a_class() -> None:
    assert read({"model_type": "gpt2", "hidden_size": 96, "num_hidden_layers": 3}).d_model == 96
    assert read({"model_type": "t5", "num_hidden_layers": 3, "head_dim": 8}).n_encoder_layers == 3


def test_activations() -> None:
    words = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
             "quick_gelu": "quick_gelu", "silu": "silu", "swish": "silu", "relu": "relu", "relu2": "relu2",
             "tanh": "tanh", "gelu_python": "gelu"}  # fmt: skip
    for word, ours in words.items():
        assert read({"model_type": "bert", "hidden_act": word}).activation == ours
    assert (
        read({"model_type": "gemma", "hidden_act": "gelu"}).activation == "gelu_tanh"
    )  # written so, but tanh is meant
    assert read({"model_type": "bert", "hidden_act": "relu"}).head_transform == "relu"
    assert read({"model_type": "roberta", "hidden_act": "relu"}).head_transform == "gelu"  # whatever hidden_act
    with pytest.raises(FamilyError, match="plait has no activation 'mish'; it has"):
        read({"model_type": "llama", "hidden_act": "mish"})


def test_t5_scale_and_gate() -> None:
    """The raw flag says whether logits are scaled; version 5 writes what it made of it, and that wins."""
    t5 = {"model_type": "t5", "d_model": 64}
    assert read(t5).logit_scale == 64**-0.5 == read(t5 | {"tie_word_embeddings": True}).logit_scale
    assert read(t5 | {"tie_word_embeddings": False}).logit_scale == 1.0
    assert read(t5 | {"tie_word_embeddings": True, "scale_decoder_outputs": False}).logit_scale == 1.0
    assert read(t5 | {"scale_decoder_outputs": None}).logit_scale == 1.0  # null is no, as for the class
    gates = {
        "relu": ("relu", False),
        "gated-gelu": ("gelu_tanh", True),
        "gated-silu": ("silu", True),
        "gelu": ("gelu", False),
    }
    for proj, expected in gates.items():
        a = read(t5 | {"feed_forward_proj": proj})
        assert (a.activation, a.gated) == expected
    written = t5 | {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu", "is_gated_act": True}
    assert read(written).activation == "gelu"  # what version 5 resolved is not resolved again


def test_embedding_scales() -> None:
    from plait.families.operations import float32

    gemma = read({"model_type": "gemma", "hidden_size": 48})
    assert gemma.embedding_scale == float32(48**0.5) != 48**0.5  # a float32 buffer in the class
    assert read({"model_type": "marian", "d_model": 48, "scale_embedding": True}).embedding_scale == 48**0.5
    assert read({"model_type": "bart", "d_model": 48}).embedding_scale == 1.0


def test_marians_two_vocabularies_by_default() -> None:
    apart = read({"model_type": "marian", "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 93})
    assert apart.vocab_size == 93 and apart.source_vocab_size == 58101  # not written where it is the class's own


def test_cohere2s_head_width(reference: ModuleType) -> None:
    for said in ({}, {"head_dim": 12}):
        config = {"model_type": "cohere2", "hidden_size": 48, "num_attention_heads": 6, **said}
        assert read(config).d_head == reference.Cohere2Config.from_dict(config).head_dim


def test_modernbert_decoders_window(reference: ModuleType) -> None:
    for said in ({"local_attention": 12}, {"local_attention": 12, "sliding_window": 4}, {"sliding_window": 4}):
        config = reference.ModernBertDecoderConfig(num_hidden_layers=4).to_dict()
        config = {"num_hidden_layers": 4, "model_type": config["model_type"], **said}
        layers = read(config).tower("decoder").layers
        assert layers[1].window == reference.ModernBertDecoderConfig.from_dict(config).sliding_window
        assert read(family_for(config).config(read(config))) == read(config)


def test_windows() -> None:
    qwen = {"model_type": "qwen2", "num_hidden_layers": 4, "sliding_window": 7, "max_window_layers": 2}
    assert read(qwen).layer_types == ()
    sees = [layer.window for layer in read(qwen | {"use_sliding_window": True}).tower("decoder").layers]
    assert sees == [None, None, 7, 7]
    listed = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    a = read(qwen | {"use_sliding_window": True, "layer_types": listed})
    assert [layer.window for layer in a.tower("decoder").layers] == [7, None, None, 7]
    with pytest.raises(FamilyError, match="sliding_window: some of the layer_types slide"):
        read(qwen | {"layer_types": listed})
    with pytest.raises(FamilyError, match="layer_types: 4 types for 5 layers"):
        read(qwen | {"use_sliding_window": True, "layer_types": listed, "num_hidden_layers": 5})
    with pytest.raises(FamilyError, match="layer_types: plait has no 'linear_attention'"):
        read(qwen | {"layer_types": ["linear_attention"] * 4})
    assert read({"model_type": "mistral", "sliding_window": 9}).layer_types == (LayerType(window=9),)
    assert [
        layer.window for layer in read({"model_type": "gemma2", "num_hidden_layers": 3}).tower("decoder").layers
    ] == [
        4096,
        None,
        4096,
    ]


def test_gemma3_turns_its_local_layers_at_their_own_speed() -> None:
    a = read({"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}})
    layers = a.tower("decoder").layers
    assert [layer.window for layer in layers[:7]] == [4096] * 5 + [None, 4096]
    assert layers[0].rope == Rope(theta=10000.0)
    assert layers[5].rope is not None and layers[5].rope.theta == 1e6 and layers[5].rope.scaling is not None
    flat = {"model_type": "gemma3_text", "rope_parameters": {"rope_theta": 5.0}}
    assert read(flat).rope == Rope(theta=1e6)  # the class looks for tables by layer type, and finds none
