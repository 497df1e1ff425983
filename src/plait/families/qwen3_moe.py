"""Qwen 3 with experts in all layers or some."""

from plait.families.experts import EACH_ALONE, TOGETHER, by_step, mixture
from plait.families.qwen import QWEN3
from plait.families.rope import rotary
from plait.families.settings import key
from plait.families.windows import uniform_window

QWEN3_MOE = QWEN3.relative(
    "qwen3_moe",
    classes=("Qwen3MoeForCausalLM", "Qwen3MoeModel"),
    settings={
        **rotary(32768),
        "d_model": key("hidden_size", 2048),
        "n_decoder_layers": key("num_hidden_layers", 24),
        "n_kv_heads": key("num_key_value_heads", 4),
        "d_head": key("head_dim", None),
        "d_ff": key("intermediate_size", 6144),
        "layer_types": by_step(uniform_window(4096, switch="use_sliding_window")),
        "experts": mixture(
            key("num_local_experts", 128),
            key("num_experts_per_tok", 8),
            key("moe_intermediate_size", 768),
            renormalize=key("norm_topk_prob", False),
        ),
    },
    weights=EACH_ALONE,
    together=TOGETHER,
    synonyms={"num_experts": "num_local_experts"},
    ignored=frozenset({"max_window_layers"}),
)
