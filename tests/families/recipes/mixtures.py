"""Mixtures of experts."""

from __future__ import annotations

from typing import Any

from tests.families.recipes.base import SMALL, Recipe, without

FULL, SLIDING = "full_attention", "sliding_attention"
NARROW = without(SMALL, "head_dim")  # where the class makes hidden_size / heads of it
PICKED = {"num_experts_per_tok": 3}
OWN_WIDTH = PICKED | {"moe_intermediate_size": 20}
LOCAL = {"num_local_experts": 7, **PICKED}
GROUPED = OWN_WIDTH | {"n_routed_experts": 8, "n_shared_experts": 2, "n_group": 4, "topk_group": 2}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "beta_fast": 4.0,
    "original_max_position_embeddings": 24,
}
DENSE_FIRST = GROUPED | {"first_k_dense_replace": 1, "routed_scaling_factor": 1.7}
SOLAR = without(SMALL, "intermediate_size") | GROUPED | {"routed_scaling_factor": 1.7}
EXAONE = (
    SMALL
    | OWN_WIDTH
    | {"num_experts": 8, "num_shared_experts": 2, "n_group": 4, "topk_group": 2, "sliding_window": 4}
    | {"sliding_window_pattern": 2, "routed_scaling_factor": 1.7}
)
GLM = SMALL | {"head_dim": 12} | DENSE_FIRST


def moe(name: str, settings: dict[str, Any], *lengths: int) -> Recipe:
    return Recipe(f"{name}Config", f"{name}ForCausalLM", settings, lengths or (13,))


RECIPES: dict[str, Recipe] = {
    "mixtral": moe("Mixtral", SMALL | LOCAL),
    "mixtral-window": moe("Mixtral", SMALL | LOCAL | {"sliding_window": 5, "tie_word_embeddings": True}),
    "qwen2_moe": moe("Qwen2Moe", NARROW | OWN_WIDTH | {"num_experts": 7, "shared_expert_intermediate_size": 28}),
    "qwen2_moe-dense": moe(
        "Qwen2Moe",
        NARROW
        | OWN_WIDTH
        | {"num_experts": 7, "shared_expert_intermediate_size": 28, "norm_topk_prob": True, "qkv_bias": False}
        | {"mlp_only_layers": [1], "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
    ),
    "qwen2_moe-steps": moe(
        "Qwen2Moe",
        NARROW | OWN_WIDTH | {"num_experts": 7, "shared_expert_intermediate_size": 28, "decoder_sparse_step": 2},
    ),
    "qwen3_moe": moe("Qwen3Moe", SMALL | OWN_WIDTH | {"num_experts": 7, "norm_topk_prob": True}),
    "qwen3_moe-dense": moe(
        "Qwen3Moe",
        SMALL
        | OWN_WIDTH
        | {"num_experts": 7, "mlp_only_layers": [0, 2], "use_sliding_window": True, "sliding_window": 5}
        | {"attention_bias": True, "rope_parameters": YARN},
        50,
    ),
    "olmoe": moe("Olmoe", NARROW | PICKED | {"num_experts": 7, "clip_qkv": 0.4}),
    "olmoe-renormalised": moe(
        "Olmoe", NARROW | PICKED | {"num_experts": 7, "norm_topk_prob": True, "attention_bias": True}
    ),
    "granitemoe": moe(
        "GraniteMoe",
        NARROW
        | LOCAL
        | {"embedding_multiplier": 3.0, "attention_multiplier": 0.23, "residual_multiplier": 0.37}
        | {"logits_scaling": 1.7, "tie_word_embeddings": True},
    ),
    "gpt_oss": moe(
        "GptOss",
        SMALL | LOCAL | {"sliding_window": 5, "swiglu_limit": 0.3, "rope_parameters": YARN | {"truncate": False}},
        13,
        50,
    ),
    "gpt_oss-listed": moe(
        "GptOss",
        SMALL | LOCAL | {"sliding_window": 4, "layer_types": [FULL, SLIDING, SLIDING], "attention_bias": False},
    ),
    "glm4_moe": moe("Glm4Moe", GLM | {"use_qk_norm": True, "attention_bias": True}),
    "glm4_moe-plain": moe("Glm4Moe", GLM | {"norm_topk_prob": False, "n_group": 1, "topk_group": 1}),
    "dots1": moe("Dots1", SMALL | DENSE_FIRST | {"norm_topk_prob": True}),
    "dots1-window": moe(
        "Dots1",
        SMALL
        | GROUPED
        | {"sliding_window": 5, "max_window_layers": 1, "attention_bias": True, "first_k_dense_replace": 2},
    ),
    "solar_open": moe("SolarOpen", without(SOLAR, "n_group", "topk_group") | {"attention_bias": True}),
    "solar_open-groups": moe(
        "SolarOpen", SOLAR | {"norm_topk_prob": False, "tie_word_embeddings": True, "rope_parameters": YARN}, 50
    ),
    "exaone_moe": moe("ExaoneMoe", EXAONE),
    "exaone_moe-listed": moe(
        "ExaoneMoe",
        EXAONE
        | {"mlp_layer_types": ["sparse", "dense", "sparse"], "layer_types": [SLIDING, FULL, SLIDING]}
        | {"norm_topk_prob": False, "num_shared_experts": 1, "tie_word_embeddings": True, "rope_parameters": YARN},
        50,
    ),
    "ernie4_5_moe": moe("Ernie4_5_Moe", SMALL | {"moe_num_experts": 7, "moe_k": 3, "moe_intermediate_size": 20}),
    "ernie4_5_moe-interval": moe(
        "Ernie4_5_Moe",
        SMALL
        | {"moe_num_experts": 7, "moe_k": 3, "moe_intermediate_size": 20, "moe_num_shared_experts": 0}
        | {"num_hidden_layers": 5, "moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 2},
    ),
    "hunyuan_v1_moe": moe("HunYuanMoEV1", SMALL | {"num_experts": 7, "moe_topk": 3}),
    "hunyuan_v1_moe-alpha": moe(
        "HunYuanMoEV1",
        SMALL
        | {"num_experts": 7, "moe_topk": [3, 3, 3], "attention_bias": True}
        | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 500.0, "alpha": 50.0, "factor": 1.0}},
    ),
    "minimax_m2": moe("MiniMaxM2", SMALL | LOCAL),
    "minimax_m2-partial": moe("MiniMaxM2", SMALL | LOCAL | {"rotary_dim": 6}),
}
