"""Qwen 2 (and 2.5): Llama with biases on queries, keys and values. Qwen 3: with norms on queries and keys instead."""

from plait.families.llama import LLAMA, NO_BIAS
from plait.families.rope import rotary
from plait.families.settings import key
from plait.families.windows import listed_windows

QWEN2 = LLAMA.relative(
    "qwen2",
    classes=("Qwen2ForCausalLM", "Qwen2Model"),
    settings={
        **NO_BIAS,
        **rotary(32768),
        "vocab_size": key("vocab_size", 151936),
        "n_kv_heads": key("num_key_value_heads", 32, nullable=True),
        "d_ff": key("intermediate_size", 22016),
        "qkv_bias": True,
        "layer_types": listed_windows(
            4096,
            lambda layer, config: layer >= config.get("max_window_layers", 28),
            reads=("max_window_layers",),
            switch="use_sliding_window",
        ),
    },
    ids={},
    tokenizer="Qwen2Tokenizer",
)

QWEN3 = QWEN2.relative(
    "qwen3",
    classes=("Qwen3ForCausalLM", "Qwen3Model"),
    settings={
        "d_head": key("head_dim", 128),
        "qkv_bias": key("attention_bias", False),
        "output_bias": key("attention_bias", False),
        "qk_norm": "head",
    },
    weights={"decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{q,k}_norm"},
)
