"""Mixtures of experts."""

from __future__ import annotations

from typing import Any

from plait.architecture import Experts, LayerType, Rope, RopeScaling

RECIPES: dict[str, tuple[str | None, dict[str, Any]]] = {
    # mistralai: Mixtral-8x7B-v0.1, Mixtral-8x22B-v0.1
    "mixtral-8x7b": (
        "mistral-7b",
        {
            "rope": Rope(theta=1e6),
            "layer_types": (),
            "experts": Experts(n_experts=8, per_token=2, d_expert=14336, renormalize=True),
        },
    ),
    "mixtral-8x22b": (
        "mixtral-8x7b",
        {
            "d_model": 6144,
            "n_heads": 48,
            "d_ff": 16384,
            "n_decoder_layers": 56,
            "max_length": 65536,
            "experts": Experts(n_experts=8, per_token=2, d_expert=16384, renormalize=True),
        },
    ),
    # Qwen: Qwen1.5-MoE-A2.7B, Qwen3-30B-A3B, Qwen3-235B-A22B
    "qwen1.5-moe-a2.7b": (
        "qwen2.5-7b",
        {
            "vocab_size": 151936,
            "d_model": 2048,
            "n_heads": 16,
            "n_kv_heads": 16,
            "d_ff": 5632,
            "n_decoder_layers": 24,
            "max_length": 8192,
            "experts": Experts(n_experts=60, per_token=4, d_expert=1408, d_shared=5632, shared_gate=True),
        },
    ),
    "qwen3-30b-a3b": (
        "qwen3-8b",
        {
            "d_model": 2048,
            "n_kv_heads": 4,
            "d_head": 128,
            "d_ff": 6144,
            "n_decoder_layers": 48,
            "experts": Experts(n_experts=128, per_token=8, d_expert=768, renormalize=True),
        },
    ),
    "qwen3-235b-a22b": (
        "qwen3-30b-a3b",
        {
            "d_model": 4096,
            "n_heads": 64,
            "d_ff": 12288,
            "n_decoder_layers": 94,
            "experts": Experts(n_experts=128, per_token=8, d_expert=1536, renormalize=True),
        },
    ),
    # openai: gpt-oss-20b, gpt-oss-120b
    "gpt-oss-20b": (
        "llama-2-7b",
        {
            "vocab_size": 201088,
            "d_model": 2880,
            "n_heads": 64,
            "n_kv_heads": 8,
            "d_head": 64,
            "d_ff": 2880,
            "n_decoder_layers": 24,
            "max_length": 131072,
            "rope": Rope(
                theta=150000.0,
                scaling=RopeScaling(kind="yarn", factor=32.0, original_max_length=4096, truncate=False),
            ),
            "layer_types": (LayerType(window=128), LayerType()),
            "qkv_bias": True,
            "output_bias": True,
            "attention_sinks": True,
            "activation": "quick_gelu",
            "glu_limit": 7.0,
            "glu_offset": 1.0,
            "ffn_bias": True,
            "experts": Experts(n_experts=32, per_token=4, d_expert=2880, router="softmax_topk", router_bias=True),
        },
    ),
    "gpt-oss-120b": (
        "gpt-oss-20b",
        {
            "n_decoder_layers": 36,
            "experts": Experts(n_experts=128, per_token=4, d_expert=2880, router="softmax_topk", router_bias=True),
        },
    ),
    # allenai/OLMoE-1B-7B-0924
    "olmoe-1b-7b": (
        "llama-2-7b",
        {
            "vocab_size": 50304,
            "d_model": 2048,
            "n_heads": 16,
            "d_ff": 1024,
            "n_decoder_layers": 16,
            "qk_norm": "full",
            "experts": Experts(n_experts=64, per_token=8, d_expert=1024),
        },
    ),
    # ibm-granite/granite-3.0-1b-a400m-base
    "granite-3-1b-a400m": (
        "granite-3-2b",
        {
            "d_model": 1024,
            "n_heads": 16,
            "d_ff": 512,
            "n_decoder_layers": 24,
            "norm_eps": 1e-6,
            "logit_scale": 1 / 6,
            "experts": Experts(n_experts=32, per_token=8, d_expert=512, router="softmax_topk"),
        },
    ),
    # zai-org/GLM-4.5, without the layer that predicts a second token
    "glm-4.5": (
        "llama-2-7b",
        {
            "vocab_size": 151552,
            "d_model": 5120,
            "n_heads": 96,
            "n_kv_heads": 8,
            "d_head": 128,
            "d_ff": 12288,
            "n_decoder_layers": 92,
            "max_length": 131072,
            "rope": Rope(theta=1e6, dim=64),
            "layer_types": (*[LayerType(sparse=False)] * 3, *[LayerType()] * 89),
            "qkv_bias": True,
            "qk_norm": "head",
            "experts": Experts(
                n_experts=160,
                per_token=8,
                d_expert=1536,
                router="sigmoid",
                selection_bias=True,
                renormalize=True,
                routed_scale=2.5,
                d_shared=1536,
            ),
        },
    ),
    # baidu/ERNIE-4.5-21B-A3B
    "ernie-4.5-21b-a3b": (
        "ernie-4.5-0.3b",
        {
            "d_model": 2560,
            "n_heads": 20,
            "n_kv_heads": 4,
            "d_ff": 12288,
            "n_decoder_layers": 28,
            "layer_types": (LayerType(sparse=False), *[LayerType()] * 27),
            "experts": Experts(
                n_experts=64, per_token=6, d_expert=1536, selection_bias=True, renormalize=True, d_shared=3072
            ),
        },
    ),
    # MiniMaxAI/MiniMax-M2
    "minimax-m2": (
        "llama-7b",
        {
            "vocab_size": 200064,
            "d_model": 3072,
            "n_heads": 48,
            "n_kv_heads": 8,
            "d_head": 128,
            "d_ff": 1536,
            "n_decoder_layers": 62,
            "max_length": 196608,
            "rope": Rope(theta=5e6, dim=64),
            "qk_norm": "full",
            "experts": Experts(
                n_experts=256,
                per_token=8,
                d_expert=1536,
                router="sigmoid",
                selection_bias=True,
                renormalize=True,
            ),
        },
    ),
}
