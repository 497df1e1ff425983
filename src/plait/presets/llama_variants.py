"""Llama's block with one thing or two otherwise: Phi, OLMo, EXAONE, Command R, Granite, GLM and others."""

from __future__ import annotations

from typing import Any

from plait.architecture import LayerType, Rope, RopeScaling

RECIPES: dict[str, tuple[str | None, dict[str, Any]]] = {
    # microsoft/Phi-3-mini-4k-instruct, microsoft/phi-4
    "phi-3-mini": (
        "llama-2-7b",
        {"vocab_size": 32064, "d_model": 3072, "d_ff": 8192, "layer_types": (LayerType(window=2047),)},
    ),
    "phi-4": (
        "llama-2-7b",
        {
            "vocab_size": 100352,
            "d_model": 5120,
            "n_heads": 40,
            "n_kv_heads": 10,
            "d_ff": 17920,
            "n_decoder_layers": 40,
            "max_length": 16384,
            "rope": Rope(theta=250000.0),
        },
    ),
    # mistralai/Ministral-8B-Instruct-2410
    "ministral-8b": (
        "mistral-7b",
        {
            "vocab_size": 131072,
            "d_ff": 12288,
            "n_decoder_layers": 36,
            "rope": Rope(theta=1e8),
            "layer_types": (LayerType(window=32768),),
        },
    ),
    # allenai: OLMo-1B-hf, OLMo-2-1124-7B, Olmo-3-1025-7B
    "olmo-1b": (
        "llama-7b",
        {
            "vocab_size": 50304,
            "d_model": 2048,
            "n_heads": 16,
            "d_ff": 8192,
            "n_decoder_layers": 16,
            "norm": "layernorm",
            "norm_eps": 1e-5,
            "norm_weight": "none",
            "tied": True,
        },
    ),
    "olmo-2-7b": (
        "llama-7b",
        {
            "vocab_size": 100352,
            "max_length": 4096,
            "norm_placement": "branch",
            "rope": Rope(theta=500000.0),
            "qk_norm": "full",
        },
    ),
    "olmo-3-7b": (
        "olmo-2-7b",
        {
            "vocab_size": 100278,
            "max_length": 65536,
            "rope": Rope(
                theta=500000.0,
                scaling=RopeScaling(
                    kind="yarn", factor=8.0, original_max_length=8192, attention_factor=1.2079441541679836
                ),
            ),
            "layer_types": (*[LayerType(window=4096, rope=Rope(theta=500000.0))] * 3, LayerType()),
        },
    ),
    # LGAI-EXAONE: EXAONE-3.5-2.4B-Instruct, EXAONE-4.0-1.2B
    "exaone-3.5-2.4b": (
        "llama-2-7b",
        {
            "vocab_size": 102400,
            "d_model": 2560,
            "n_kv_heads": 8,
            "d_ff": 7168,
            "n_decoder_layers": 30,
            "max_length": 32768,
            "rope": Rope(theta=1e6, scaling=RopeScaling(kind="llama3", factor=8.0, original_max_length=8192)),
            "tied": True,
        },
    ),
    "exaone-4-1.2b": (
        "exaone-3.5-2.4b",
        {
            "d_model": 2048,
            "d_ff": 4096,
            "max_length": 65536,
            "norm_placement": "branch",
            "rope": Rope(theta=1e6, scaling=RopeScaling(kind="llama3", factor=16.0, original_max_length=8192)),
            "qk_norm": "head",
        },
    ),
    # CohereForAI: c4ai-command-r-v01, c4ai-command-r7b-12-2024
    "command-r": (
        "llama-2-7b",
        {
            "vocab_size": 256000,
            "d_model": 8192,
            "n_heads": 64,
            "d_ff": 22528,
            "n_decoder_layers": 40,
            "max_length": 8192,
            "norm": "layernorm",
            "norm_bias": False,
            "parallel": "shared",
            "rope": Rope(theta=8e6, interleaved=True),
            "tied": True,
            "logit_scale": 0.0625,
        },
    ),
    "command-r7b": (
        "command-r",
        {
            "d_model": 4096,
            "n_heads": 32,
            "n_kv_heads": 8,
            "d_ff": 14336,
            "n_decoder_layers": 32,
            "rope": Rope(theta=50000.0, interleaved=True),
            "layer_types": (*[LayerType(window=4096)] * 3, LayerType(rope=None)),
            "logit_scale": 0.25,
        },
    ),
    # ibm-granite/granite-3.0-2b-base
    "granite-3-2b": (
        "llama-2-7b",
        {
            "vocab_size": 49155,
            "d_model": 2048,
            "n_kv_heads": 8,
            "d_ff": 8192,
            "n_decoder_layers": 40,
            "attention_scale": 0.015625,
            "embedding_scale": 12.0,
            "residual_scale": 0.22,
            "tied": True,
            "logit_scale": 0.125,
        },
    ),
    # HuggingFaceTB/SmolLM3-3B
    "smollm3-3b": (
        "llama-7b",
        {
            "vocab_size": 128256,
            "d_model": 2048,
            "n_heads": 16,
            "n_kv_heads": 4,
            "n_decoder_layers": 36,
            "max_length": 65536,
            "rope": Rope(theta=5e6),
            "layer_types": (*[LayerType()] * 3, LayerType(rope=None)),
            "tied": True,
        },
    ),
    # zai-org/GLM-4-9B-0414
    "glm-4-9b": (
        "llama-2-7b",
        {
            "vocab_size": 151552,
            "n_kv_heads": 2,
            "d_ff": 13696,
            "n_decoder_layers": 40,
            "max_length": 32768,
            "norm_placement": "sandwich",
            "rope": Rope(dim=64, interleaved=True),
            "qkv_bias": True,
        },
    ),
    # baidu/ERNIE-4.5-0.3B-PT
    "ernie-4.5-0.3b": (
        "llama-2-7b",
        {
            "vocab_size": 103424,
            "d_model": 1024,
            "n_heads": 16,
            "n_kv_heads": 2,
            "d_head": 128,
            "d_ff": 3072,
            "n_decoder_layers": 18,
            "max_length": 131072,
            "rope": Rope(theta=500000.0, interleaved=True),
            "tied": True,
        },
    ),
    # ByteDance-Seed/Seed-OSS-36B-Instruct
    "seed-oss-36b": (
        "llama-7b",
        {
            "vocab_size": 155136,
            "d_model": 5120,
            "n_heads": 80,
            "n_kv_heads": 8,
            "d_head": 128,
            "d_ff": 27648,
            "n_decoder_layers": 64,
            "max_length": 524288,
            "rope": Rope(theta=1e7),
            "qkv_bias": True,
        },
    ),
    # internlm/internlm3-8b-instruct; its rope is made for rows of any length
    "internlm3-8b": (
        "llama-2-7b",
        {
            "vocab_size": 128512,
            "n_kv_heads": 2,
            "d_ff": 10240,
            "n_decoder_layers": 48,
            "max_length": None,
            "rope": Rope(theta=5e7, scaling=RopeScaling(kind="dynamic", factor=6.0, original_max_length=32768)),
        },
    ),
    # facebook/cwm
    "cwm-32b": (
        "llama-2-7b",
        {
            "vocab_size": 128256,
            "d_model": 6144,
            "n_heads": 48,
            "n_kv_heads": 8,
            "d_ff": 21504,
            "n_decoder_layers": 64,
            "max_length": 131072,
            "rope": Rope(theta=1e6, scaling=RopeScaling(kind="llama3", factor=16.0, original_max_length=8192)),
            "layer_types": (LayerType(), *[LayerType(window=8192)] * 3),
        },
    ),
}
