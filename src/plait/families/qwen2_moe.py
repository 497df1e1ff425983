"""Qwen 2 with experts in all layers or some, and one beside them that every token takes, with a gate of its own."""

from plait.families.experts import EACH_ALONE, TOGETHER, by_step, mixture
from plait.families.qwen import QWEN2
from plait.families.settings import key
from plait.families.windows import listed_windows

QWEN2_MOE = QWEN2.relative(
    "qwen2_moe",
    classes=("Qwen2MoeForCausalLM", "Qwen2MoeModel"),
    settings={
        "d_model": key("hidden_size", 2048),
        "n_decoder_layers": key("num_hidden_layers", 24),
        "n_heads": key("num_attention_heads", 16),
        "n_kv_heads": key("num_key_value_heads", 16),
        "d_ff": key("intermediate_size", 5632),
        "qkv_bias": key("qkv_bias", True),
        "layer_types": by_step(
            listed_windows(
                4096,
                lambda layer, config: layer % 2 == 0 and layer < config.get("max_window_layers", 28),
                reads=("max_window_layers",),
                switch="use_sliding_window",
            )
        ),
        "experts": mixture(
            key("num_experts", 60),
            key("num_experts_per_tok", 4),
            key("moe_intermediate_size", 1408),
            renormalize=key("norm_topk_prob", False),
            d_shared=key("shared_expert_intermediate_size", 5632),
            shared_gate=True,
        ),
    },
    weights={
        **EACH_ALONE,
        "decoder.layers.{i}.ffn.shared.{gate,up,down}": "layers.{i}.mlp.shared_expert.{gate,up,down}_proj",
        "decoder.layers.{i}.ffn.shared_gate": "layers.{i}.mlp.shared_expert_gate",
    },
    together=TOGETHER,
    synonyms={"num_local_experts": "num_experts"},
)
