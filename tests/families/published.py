"""Configs of mixtures of experts as their makers published them, with the settings of their own code."""

from __future__ import annotations

import dataclasses
from typing import Any

from plait.architecture import Experts

# name: (config.json without what only trains or generates, its experts, how many layers at its start have none)
PUBLISHED: dict[str, tuple[dict[str, Any], Experts, int]] = {
    "mixtral-8x7b": (
        {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "rope_theta": 1e6,
         "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32, "vocab_size": 32000,
         "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
         "output_router_logits": False, "router_aux_loss_coef": 0.02, "rms_norm_eps": 1e-5, "sliding_window": None,
         "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0"},
        Experts(n_experts=8, per_token=2, d_expert=14336, renormalize=True), 0,
    ),
    "qwen1.5-moe-a2.7b": (
        {"model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "decoder_sparse_step": 1,
         "hidden_size": 2048, "intermediate_size": 5632, "max_window_layers": 21, "moe_intermediate_size": 1408,
         "max_position_embeddings": 8192,
         "norm_topk_prob": False, "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
         "num_hidden_layers": 24, "num_key_value_heads": 16, "router_aux_loss_coef": 0.001, "rope_theta": 1e6,
         "shared_expert_intermediate_size": 5632, "sliding_window": 32768, "use_sliding_window": False,
         "output_router_logits": False, "rms_norm_eps": 1e-6, "vocab_size": 151936},
        Experts(n_experts=60, per_token=4, d_expert=1408, d_shared=5632, shared_gate=True), 0,
    ),
    "qwen3-30b-a3b": (
        {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False,
         "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
         "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [], "num_experts": 128,
         "moe_intermediate_size": 768, "norm_topk_prob": True, "num_attention_heads": 32, "num_experts_per_tok": 8,
         "num_hidden_layers": 48, "num_key_value_heads": 4, "rope_theta": 1e6, "rope_scaling": None,
         "sliding_window": None, "use_sliding_window": False, "vocab_size": 151936, "rms_norm_eps": 1e-6},
        Experts(n_experts=128, per_token=8, d_expert=768, renormalize=True), 0,
    ),
    "gpt-oss-20b": (
        {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "attention_bias": True, "head_dim": 64,
         "experts_per_token": 4, "num_experts_per_tok": 4, "hidden_act": "silu", "hidden_size": 2880,
         "initial_context_length": 4096, "intermediate_size": 2880, "max_position_embeddings": 131072,
         "num_attention_heads": 64, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
         "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "rope_type": "yarn",
                          "original_max_position_embeddings": 4096, "truncate": False},
         "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0, "vocab_size": 201088,
         "layer_types": ["sliding_attention", "full_attention"] * 12, "router_aux_loss_coef": 0.9},
        Experts(n_experts=32, per_token=4, d_expert=2880, router="softmax_topk", router_bias=True), 0,
    ),
    "glm-4.5": (
        {"model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "attention_bias": True, "head_dim": 128,
         "hidden_size": 5120, "partial_rotary_factor": 0.5, "intermediate_size": 12288, "moe_intermediate_size": 1536,
         "max_position_embeddings": 131072, "norm_topk_prob": True, "num_attention_heads": 96, "n_group": 1,
         "topk_group": 1, "n_routed_experts": 160, "n_shared_experts": 1, "routed_scaling_factor": 2.5,
         "num_experts_per_tok": 8, "first_k_dense_replace": 3, "num_hidden_layers": 92, "num_key_value_heads": 8,
         "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 1000000,
         "use_qk_norm": True, "vocab_size": 151552},
        Experts(n_experts=160, per_token=8, d_expert=1536, router="sigmoid", selection_bias=True, renormalize=True,
                routed_scale=2.5, d_shared=1536), 3,
    ),
    "dots.llm1": (
        {"model_type": "dots1", "architectures": ["Dots1ForCausalLM"], "attention_bias": False, "hidden_size": 4096,
         "first_k_dense_replace": 1, "intermediate_size": 10944, "max_window_layers": 62, "moe_layer_freq": 1,
         "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 2,
         "norm_topk_prob": True, "num_attention_heads": 32, "num_experts_per_tok": 6, "num_hidden_layers": 62,
         "num_key_value_heads": 32, "rope_scaling": None, "rope_theta": 10000000, "routed_scaling_factor": 2.5,
         "scoring_func": "noaux_tc", "sliding_window": None, "topk_group": 1, "vocab_size": 152064},
        Experts(n_experts=128, per_token=6, d_expert=1408, router="sigmoid", selection_bias=True, renormalize=True,
                routed_scale=2.5, d_shared=2816), 1,
    ),
    "solar-open-100b": (
        {"model_type": "solar_open", "architectures": ["SolarOpenForCausalLM"], "attention_bias": False,
         "head_dim": 128, "hidden_size": 4096, "intermediate_size": 10240, "moe_intermediate_size": 1280,
         "first_k_dense_replace": 0,
         "max_position_embeddings": 131072, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1,
         "norm_topk_prob": True, "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 48,
         "num_key_value_heads": 8, "partial_rotary_factor": 1.0, "rms_norm_eps": 1e-5, "rope_theta": 1000000,
         "rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 65536},
         "routed_scaling_factor": 1.0, "topk_group": 1, "use_qk_norm": False, "vocab_size": 196608},
        Experts(n_experts=128, per_token=8, d_expert=1280, router="sigmoid", selection_bias=True, renormalize=True,
                d_shared=1280), 0,
    ),
    "k-exaone-236b-a23b": (
        {"model_type": "exaone_moe", "architectures": ["ExaoneMoEForCausalLM"], "first_k_dense_replace": 1,
         "head_dim": 128, "hidden_size": 6144, "intermediate_size": 18432, "is_moe_layer": [False] + [True] * 47,
         "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 12, "max_position_embeddings": 262144,
         "moe_intermediate_size": 2048, "n_group": 1, "norm_topk_prob": True, "num_attention_heads": 64,
         "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 8,
         "num_nextn_predict_layers": 1, "num_shared_experts": 1, "rms_norm_eps": 1e-5,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1000000}, "routed_scaling_factor": 2.5,
         "scoring_func": "sigmoid", "sliding_window": 128, "sliding_window_pattern": "LLLG", "topk_group": 1,
         "topk_method": "noaux_tc", "vocab_size": 153600},
        Experts(n_experts=128, per_token=8, d_expert=2048, router="sigmoid", selection_bias=True, renormalize=True,
                routed_scale=2.5, d_shared=2048), 1,
    ),
    "ernie-4.5-21b-a3b": (
        {"model_type": "ernie4_5_moe", "architectures": ["Ernie4_5_MoeForCausalLM"], "hidden_size": 2560,
         "intermediate_size": 12288, "max_position_embeddings": 131072, "moe_capacity": [64, 64, 64], "moe_k": 6,
         "moe_gate": "topk", "moe_intermediate_size": 1536, "moe_layer_end_index": -1, "moe_layer_interval": 1,
         "moe_layer_start_index": 1, "moe_num_experts": 64, "moe_num_shared_experts": 2, "moe_use_aux_free": True,
         "num_attention_heads": 20, "num_hidden_layers": 28, "num_key_value_heads": 4, "rope_theta": 500000.0,
         "rope_scaling": None, "use_bias": False, "vocab_size": 103424, "tie_word_embeddings": True},
        Experts(n_experts=64, per_token=6, d_expert=1536, selection_bias=True, renormalize=True, d_shared=3072),
        1,
    ),
    "hunyuan-a13b": (
        {"model_type": "hunyuan_v1_moe", "architectures": ["HunYuanMoEV1ForCausalLM"], "attention_head_dim": 128,
         "head_dim": 128, "hidden_size": 4096, "intermediate_size": 3072, "max_position_embeddings": 32768,
         "mlp_bias": False, "moe_intermediate_size": [3072] * 32, "moe_topk": [8] * 32, "num_experts": 64,
         "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_shared_expert": [1] * 32,
         "moe_drop_tokens": False, "moe_layer_num_skipped": 0, "use_cla": False, "use_mla": False, "use_qk_norm": True,
         "use_mixed_mlp_moe": True, "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0,
                                                     "mscale": 1.0, "mscale_all_dim": 1.0, "type": "dynamic"},
         "rope_theta": 10000.0, "vocab_size": 128167, "tie_word_embeddings": True},
        Experts(n_experts=64, per_token=8, d_expert=3072, renormalize=True, d_shared=3072), 0,
    ),
    "minimax-m2": (
        {"model_type": "minimax_m2", "architectures": ["MiniMaxM2ForCausalLM"], "attn_type_list": [1] * 62,
         "head_dim": 128, "hidden_size": 3072, "intermediate_size": 1536, "layernorm_full_attention_beta": 1.0,
         "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_beta": 1.0, "max_position_embeddings": 196608,
         "mlp_intermediate_size": 8192, "mtp_transformer_layers": 1, "num_attention_heads": 48, "num_mtp_modules": 3,
         "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8, "num_local_experts": 256,
         "qk_norm_type": "per_layer", "rope_theta": 5000000, "rotary_dim": 64, "router_jitter_noise": 0.0,
         "scoring_func": "sigmoid", "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "use_mtp": True,
         "sliding_window": None, "use_qk_norm": True, "use_routing_bias": True, "vocab_size": 200064},
        Experts(n_experts=256, per_token=8, d_expert=1536, router="sigmoid", selection_bias=True, renormalize=True),
        0,
    ),
    "olmoe-1b-7b": (
        {"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "attention_bias": False, "clip_qkv": None,
         "hidden_size": 2048, "intermediate_size": 1024, "max_position_embeddings": 4096, "norm_topk_prob": False,
         "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16,
         "num_key_value_heads": 16, "rope_scaling": None, "rope_theta": 10000.0, "vocab_size": 50304},
        Experts(n_experts=64, per_token=8, d_expert=1024), 0,
    ),
    "granite-3-1b-a400m": (
        {"model_type": "granitemoe", "architectures": ["GraniteMoeForCausalLM"], "attention_multiplier": 0.015625,
         "embedding_multiplier": 12.0, "hidden_size": 1024, "intermediate_size": 512, "logits_scaling": 6.0,
         "max_position_embeddings": 4096, "num_attention_heads": 16, "num_experts_per_tok": 8, "vocab_size": 49155,
         "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32, "residual_multiplier": 0.22,
         "rope_scaling": None, "rope_theta": 10000, "rms_norm_eps": 1e-6, "tie_word_embeddings": True},
        Experts(n_experts=32, per_token=8, d_expert=512, router="softmax_topk"), 0,
    ),
}  # fmt: skip


def _larger(name: str, layers: int, **settings: Any) -> tuple[dict[str, Any], Experts, int]:
    """A sibling with more of the same."""
    config, experts, n_dense = PUBLISHED[name]
    config = config | {"num_hidden_layers": layers} | settings
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][:2] * (layers // 2)
    n_experts = config.get("num_local_experts") or config["num_experts"]
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    return config, dataclasses.replace(experts, n_experts=n_experts, d_expert=width), n_dense


PUBLISHED |= {
    "mixtral-8x22b": _larger(
        "mixtral-8x7b", 56, hidden_size=6144, intermediate_size=16384, num_attention_heads=48,
        max_position_embeddings=65536,
    ),
    "qwen3-235b-a22b": _larger(
        "qwen3-30b-a3b", 94, hidden_size=4096, intermediate_size=12288, num_attention_heads=64,
        moe_intermediate_size=1536, max_window_layers=94,
    ),
    "gpt-oss-120b": _larger("gpt-oss-20b", 36, num_local_experts=128),
}  # fmt: skip
