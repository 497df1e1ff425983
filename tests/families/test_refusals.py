"""What plait does not have is refused in one sentence that names the part; what never matters is not mentioned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plait.families import FAMILIES, FamilyError, family_for
from plait.presets import preset
from tests.families.test_spellings import BESIDE


def refuse(match: str, **config: Any) -> None:
    with pytest.raises(FamilyError, match=match) as caught:
        family_for(config).architecture(config)
    assert str(caught.value).count(". ") == 0 and str(caught.value).endswith((".", "?"))


PARTS = [
    ("experts", {"model_type": "llama", "num_local_experts": 8}),
    ("experts", {"model_type": "lexis_moe", "n_routed_experts": 8}),
    ("multi-head latent attention", {"model_type": "deepseek_v3", "n_routed_experts": 8, "kv_lora_rank": 512}),
    ("multi-head latent attention", {"model_type": "hunyuan_v1_moe", "use_mla": True}),
    ("sparsemixer", {"model_type": "phimoe", "num_local_experts": 16}),
    ("attention in chunks", {"model_type": "llama4_text", "num_local_experts": 16, "attention_chunk_size": 8192}),
    ("linear attention", {"model_type": "qwen3_next", "num_experts": 512, "linear_num_key_heads": 16}),
    ("moe_topk|differs from layer to layer", {"model_type": "hunyuan_v1_moe", "num_experts": 8, "moe_topk": [1, 2]}),
    ("use_bias", {"model_type": "ernie4_5_moe", "use_bias": True}),
    ("embedding_size: 64", {"model_type": "albert", "embedding_size": 64, "hidden_size": 64}),
    ("scoring_func: 'softmax'", {"model_type": "minimax_m2", "scoring_func": "softmax"}),
    ("swiglu_alpha: 1.5", {"model_type": "gpt_oss", "swiglu_alpha": 1.5}),
    ("groups", {"model_type": "dots1", "n_routed_experts": 7, "num_experts_per_tok": 2, "n_group": 2}),
    ("weights quantised in this format", {"model_type": "llama", "quantization_config": {"quant_method": "awq"}}),
    ("multimodal wrapper|image tower", {"model_type": "kosmos-2", "text_config": {}, "vision_config": {}}),
    ("weights quantised in this format", {"model_type": "llama", "compression_config": {"format": "int"}}),
    ("a second tower", {"model_type": "llama", "is_encoder_decoder": True}),
    ("cross-attention", {"model_type": "gpt2", "add_cross_attention": True}),
    ("a decoder built out of this encoder", {"model_type": "bert", "is_decoder": True}),
    ("divided by the layer's number", {"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}),
    ("without a causal mask", {"model_type": "gemma3_text", "use_bidirectional_attention": True}),
    ("without a causal mask", {"model_type": "qwen2", "is_causal": False}),  # gte-Qwen2
    ("disentangled attention", {"model_type": "deberta-v2", "pos_att_type": ["c2p", "p2c"]}),
    ("types of tasks", {"model_type": "ernie", "use_task_id": True}),
    ("positions", {"model_type": "bert", "position_embedding_type": "relative_key"}),
    ("head for LlamaForQuestionAnswering", {"model_type": "llama", "architectures": ["LlamaForQuestionAnswering"]}),
    ("head for BertForMultipleChoice", {"model_type": "bert", "architectures": ["BertForMultipleChoice"]}),
    ("head for T5GemmaEncoderModel", {"model_type": "t5gemma", "architectures": ["T5GemmaEncoderModel"]}),
    ("head for GPT2DoubleHeadsModel", {"model_type": "gpt2", "architectures": ["GPT2DoubleHeadsModel"]}),
    ("head for ModernBertDecoderForSeq", {"model_type": "modernbert-decoder",
                                          "architectures": ["ModernBertDecoderForSequenceClassification"]}),
    ("norms before the blocks", {"model_type": "bart", "normalize_before": True}),
]  # fmt: skip


def gemmas(**encoder: Any) -> dict[str, Any]:
    small = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 3, "num_hidden_layers": 2}
    return {"model_type": "t5gemma", "decoder": small, "encoder": small | encoder}


PARTS += [
    ("encoder.d_model: 96, and decoder.d_model 48: plait has one", gemmas(hidden_size=96)),
    ("encoder.norm_eps: 0.1, and decoder.norm_eps 1e-06", gemmas(rms_norm_eps=0.1)),
    ("encoder.layer_types: they are not the decoder's", gemmas(sliding_window=7)),
    ("experts", gemmas(num_experts=8)),
    ("a norm on the decoder's embeddings before positions are added", {"model_type": "blenderbot-small"}),
    ("attention in windows", {"model_type": "led"}),
    ("attention in windows", {"model_type": "longformer"}),
    ("disentangled attention", {"model_type": "deberta"}),
    ("convolutions in place of attention", {"model_type": "lfm2"}),
    ("state-space layers", {"model_type": "nemotron_h", "n_routed_experts": 8}),
    ("layers with inputs of their own", {"model_type": "gemma3n", "text_config": {}, "vision_config": {}}),
    ("experts behind an encoder", {"model_type": "switch_transformers", "is_encoder_decoder": True}),
    ("learned prompts", {"model_type": "mvp", "use_prompt": True}),
]


@pytest.mark.parametrize(("part", "config"), PARTS)
def test_parts_that_are_not_there(part: str, config: dict[str, Any]) -> None:
    refuse(part, **config)


def test_tables_as_wide_as_the_model_are_not_written_as_albert() -> None:
    """The class would look for a projection that is not there."""
    with pytest.raises(FamilyError, match="embedding_size: 768 is hidden_size too"):
        family_for({"model_type": "albert"}).config(preset("albert-base").replace(d_embedding=768))


def test_an_encoder_sees_all_whatever_its_config_says() -> None:
    for config in ({"model_type": "bert", "is_causal": False}, {"model_type": "eurobert", "is_causal": True}):
        assert family_for(config).architecture(config).n_decoder_layers == 0
        assert not family_for(config).unread(config)


def test_the_format_of_quantised_weights_is_named() -> None:
    refuse("'gptq'", model_type="qwen2", quantization_config={"quant_method": "gptq", "bits": 4})


def test_unknown_families_suggest_the_nearest() -> None:
    n = len({kind for family in FAMILIES for kind in family.model_types})
    where = f"{n}, which docs/families.md lists"
    refuse(f"no family 'lama'; it reads {where}; did you mean 'llama'", model_type="lama")
    refuse(f"no family 'zzz'; it reads {where}", model_type="zzz")
    refuse(f"model_type: the config does not say it; plait reads {where}", hidden_size=3)


@pytest.mark.parametrize("kind", ["udop", "canary", "pop2piano"])
def test_an_unknown_family_with_two_towers_is_unknown(kind: str) -> None:
    refuse(f"plait has no family '{kind}'", model_type=kind, is_encoder_decoder=True, normalize_before=True)


@pytest.mark.parametrize("kind", ["gpt_neox", "falcon", "stablelm", "persimmon", "modernbert", "gte", "bert"])
def test_a_width_of_heads_that_no_rule_reads(kind: str) -> None:
    """The reference turns so many dimensions of heads that are not so wide."""
    config = {"model_type": kind, "hidden_size": 48, "num_attention_heads": 6}
    config |= {"num_key_value_heads": 6} if kind == "stablelm" else {}
    refuse("head_dim: 12 is not the width of .* heads, which is d_model / n_heads, 8", **config, head_dim=12)
    for fitting in (8, None):
        family = family_for(config)
        assert family.architecture(config | {"head_dim": fitting}) == family.architecture(config)
        assert not family.unread(config | {"head_dim": fitting})


def test_sv10_code_of_a_checkpoint_never_runs(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "modeling_own.py").write_text(f"open({str(marker)!r}, 'w').close()")
    own = {"auto_map": {"AutoModelForCausalLM": "modeling_own.Own", "AutoConfig": "modeling_own.OwnConfig"}}
    assert family_for({"model_type": "llama", **own}).name == "llama"  # ours, whatever it offers
    config = {"model_type": "llama", "trust_remote_code": True, **own}
    assert family_for(config).architecture(config).d_model == 4096
    refuse("'own' brings code of its own .auto_map., which plait never runs", model_type="own", **own)
    assert not marker.exists()


FOREIGN = [
    ("sliding_window", 4096, "llama"),
    ("attn_logit_softcapping", 50.0, "llama"),
    ("final_logit_softcapping", 30.0, "qwen2"),
    ("query_pre_attn_scalar", 144, "gemma"),
    ("attention_bias", True, "mistral"),
    ("rope_scaling", {"type": "linear", "factor": 2.0}, "gpt2"),
    ("scale_embedding", True, "t5"),
    ("residual_multiplier", 0.22, "llama"),
]


@pytest.mark.parametrize(("name", "value", "family"), FOREIGN)
def test_knobs_of_other_families_must_be_neutral(name: str, value: Any, family: str) -> None:
    refuse(f"{name}: .* means nothing in {family}", model_type=family, **{name: value})


def test_neutral_knobs_are_fine() -> None:
    neutral = {"sliding_window": None, "attn_logit_softcapping": None, "mlp_bias": False, "residual_multiplier": 1.0,
               "num_local_experts": 0, "quantization_config": None, "is_decoder": False}  # fmt: skip
    for family in FAMILIES:
        config = {
            "model_type": family.model_types[0],
            **BESIDE.get(family.name, {}),
            **{k: v for k, v in neutral.items() if k not in family.keys},
        }
        family.architecture(config)
        assert not family.unread(config)


def test_unread_settings_are_told() -> None:
    config = {"model_type": "llama", "frobnicate": 3, "bos_token_id": 1, "rope_theta": 1e4, "attention_dropout": 0.1}
    assert family_for(config).unread(config) == ("frobnicate",)


MALFORMED = [
    (
        "layer_types: .* max_window_layers None",
        {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": None},
    ),
    ("layer_types: .* sliding_window_pattern None", {"model_type": "gemma3_text", "sliding_window_pattern": None}),
    (
        "layer_types: .* global_attn_every_n_layers None",
        {"model_type": "modernbert", "global_attn_every_n_layers": None},
    ),
    ("layer_types: .* layer_types 5", {"model_type": "gemma2", "layer_types": 5}),
    ("layer_types: .* num_hidden_layers '3'", {"model_type": "gemma2", "num_hidden_layers": "3"}),
    ("rope: .* num_attention_heads 0", {"model_type": "llama", "num_attention_heads": 0, "partial_rotary_factor": 0.5}),
    ("n_heads: 0", {"model_type": "bert", "num_attention_heads": 0}),
    ("d_head: 0", {"model_type": "llama", "head_dim": 0}),
    ("attention_scale: .* query_pre_attn_scalar 0", {"model_type": "gemma2", "query_pre_attn_scalar": 0}),
    ("attention_scale: 0.0 .* give a positive number", {"model_type": "granite", "attention_multiplier": 0.0}),
    ("logit_scale: .* logits_scaling 0", {"model_type": "granite", "logits_scaling": 0}),
    ("rope: .* rope_theta 'x'", {"model_type": "llama", "rope_theta": "x"}),
    ("activation: .* hidden_act ", {"model_type": "llama", "hidden_act": ["silu"]}),
    ("architectures: 5 is no list of names", {"model_type": "llama", "architectures": 5}),
    ("architectures: .* is no list of names", {"model_type": "llama", "architectures": [None]}),
    ("model_type: .* is no name of a family", {"model_type": ["llama"]}),
]


@pytest.mark.parametrize(("words", "config"), MALFORMED)
def test_values_of_the_wrong_kind_are_named(words: str, config: dict[str, Any]) -> None:
    refuse(words, **config)


def test_a_config_that_describes_nothing() -> None:
    refuse(
        "this llama config describes no Transformer: n_heads", model_type="llama", hidden_size=10, num_attention_heads=3
    )


PUBLISHED = {
    # settings that published configs of these families carry, beside those that the class of today writes
    "gpt2": {"n_ctx": 1024, "task_specific_params": {"text-generation": {"do_sample": True}}, "model_type": "gpt2"},
    "bert": {"gradient_checkpointing": False, "position_embedding_type": "absolute", "directionality": "bidi",
             "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_type": "first_token_transform"},
    "t5": {"n_positions": 512, "output_past": True, "decoder_start_token_id": 0, "task_specific_params": {}},
    "marian": {"add_bias_logits": False, "add_final_layer_norm": False, "normalize_before": False,
               "normalize_embedding": False, "static_position_embeddings": True, "classif_dropout": 0.0,
               "bad_words_ids": [[58100]], "num_beams": 6, "max_length": 512, "num_hidden_layers": 6,
               "extra_pos_embeddings": 58101, "_num_labels": 3},
    "bart": {"normalize_embedding": True, "static_position_embeddings": False, "force_bos_token_to_be_generated": False,
             "no_repeat_ngram_size": 3, "early_stopping": True, "prefix": " ", "extra_pos_embeddings": 2},
    "llama": {"pretraining_tp": 1, "rope_interleaved": False, "_name_or_path": "x", "is_llama_config": True},
    "gemma": {"hidden_activation": "gelu_pytorch_tanh"},
    "gemma2": {"hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid"},
    "gemma3_text": {"cache_implementation": "hybrid", "_sliding_window_pattern": 6, "sliding_window_pattern": 6},
    "gpt_neox": {"rotary_pct": 0.25, "rotary_emb_base": 10000},
    "qwen2": {"rope_theta": 1e6, "max_window_layers": 21},
}  # fmt: skip


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_configs_read_without_a_word(kind: str) -> None:
    config = {"model_type": kind, **PUBLISHED[kind]}
    family = family_for(config)
    family.architecture(config)
    assert family.unread(config) == ()
