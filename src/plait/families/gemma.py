"""Gemma: Llama with norms that scale by 1 + w, scaled embeddings and a tied head.

Gemma 2 puts a norm on both sides of every block and lets every other layer see only a window.
"""

from math import sqrt

from plait.families.llama import LLAMA, NO_BIAS
from plait.families.operations import ACTIVATION, INVERSE_ROOT, float32, preferring
from plait.families.rope import rotary
from plait.families.settings import derived, key
from plait.families.windows import listed_windows

TANH = "gelu_pytorch_tanh"

GEMMA = LLAMA.relative(
    "gemma",
    classes=("GemmaForCausalLM", "GemmaModel"),
    settings={
        **NO_BIAS,
        **rotary(8192),
        "vocab_size": key("vocab_size", 256000),
        "d_model": key("hidden_size", 3072),
        "n_decoder_layers": key("num_hidden_layers", 28),
        "n_heads": key("num_attention_heads", 16),
        "n_kv_heads": key("num_key_value_heads", 16),
        "d_head": key("head_dim", 256),
        "d_ff": key("intermediate_size", 24576),
        "norm_weight": "offset",
        "qkv_bias": key("attention_bias", False),
        "output_bias": key("attention_bias", False),
        "activation": key("hidden_act", TANH, preferring(TANH, gelu="gelu_tanh")),  # "gelu" was written, tanh is meant
        "embedding_scale": derived(lambda fields: float32(sqrt(fields["d_model"]))),  # a float32 buffer in the class
    },
    tied=True,
    ignored=frozenset({"hidden_activation"}),
    ids={"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2},
    tokenizer="GemmaTokenizer",
)

GEMMA2 = GEMMA.relative(
    "gemma2",
    classes=("Gemma2ForCausalLM", "Gemma2Model"),
    settings={
        "d_model": key("hidden_size", 2304),
        "n_decoder_layers": key("num_hidden_layers", 26),
        "n_heads": key("num_attention_heads", 8),
        "n_kv_heads": key("num_key_value_heads", 4),
        "d_ff": key("intermediate_size", 9216),
        "norm_placement": "sandwich",
        "activation": key("hidden_activation", TANH, ACTIVATION),
        "attention_scale": key("query_pre_attn_scalar", 256, INVERSE_ROOT),
        "attention_softcap": key("attn_logit_softcapping", 50.0, nullable=True),
        "logit_softcap": key("final_logit_softcapping", 30.0, nullable=True),
        "layer_types": listed_windows(4096, lambda layer, _: layer % 2 == 0),
    },
    weights={
        "decoder.layers.{i}.attention_norms.after": "layers.{i}.post_attention_layernorm",
        "decoder.layers.{i}.ffn_norms.before": "layers.{i}.pre_feedforward_layernorm",
        "decoder.layers.{i}.ffn_norms.after": "layers.{i}.post_feedforward_layernorm",
    },
    ignored=frozenset({"hidden_act"}),
)
