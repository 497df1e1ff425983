"""Llama, Mistral, SmolLM2 and Qwen: the block that most decoders since 2023 share."""

from __future__ import annotations

from typing import Any

from plait.architecture import LayerType, Rope, RopeScaling

RECIPES: dict[str, tuple[str | None, dict[str, Any]]] = {
    # Touvron et al. 2023
    "llama-7b": (
        None,
        {
            "vocab_size": 32000,
            "d_model": 4096,
            "n_heads": 32,
            "d_ff": 11008,
            "n_decoder_layers": 32,
            "max_length": 2048,
            "norm": "rmsnorm",
            "norm_eps": 1e-6,
            "position": "rope",
            "qkv_bias": False,
            "output_bias": False,
            "activation": "silu",
            "gated": True,
            "ffn_bias": False,
        },
    ),
    "llama-2-7b": ("llama-7b", {"norm_eps": 1e-5, "max_length": 4096}),
    "llama-2-13b": ("llama-2-7b", {"d_model": 5120, "n_heads": 40, "d_ff": 13824, "n_decoder_layers": 40}),
    "llama-2-70b": (
        "llama-2-7b",
        {"d_model": 8192, "n_heads": 64, "n_kv_heads": 8, "d_ff": 28672, "n_decoder_layers": 80},
    ),
    "llama-3-8b": (
        "llama-2-7b",
        {"vocab_size": 128256, "n_kv_heads": 8, "d_ff": 14336, "max_length": 8192, "rope": Rope(theta=500000.0)},
    ),
    "llama-3-70b": ("llama-3-8b", {"d_model": 8192, "n_heads": 64, "d_ff": 28672, "n_decoder_layers": 80}),
    "llama-3.1-405b": (
        "llama-3-70b",
        {
            "d_model": 16384,
            "n_heads": 128,
            "d_ff": 53248,
            "n_decoder_layers": 126,
            "max_length": 131072,
            "rope": Rope(theta=500000.0, scaling=RopeScaling(kind="llama3", factor=8.0, original_max_length=8192)),
        },
    ),
    "llama-3.2-1b": (
        "llama-3-8b",
        {
            "d_model": 2048,
            "d_ff": 8192,
            "n_decoder_layers": 16,
            "max_length": 131072,
            "rope": Rope(theta=500000.0, scaling=RopeScaling(kind="llama3", factor=32.0, original_max_length=8192)),
            "tied": True,
        },
    ),
    # mistralai/Mistral-7B-v0.1
    "mistral-7b": (
        "llama-2-7b",
        {"n_kv_heads": 8, "d_ff": 14336, "max_length": 32768, "layer_types": (LayerType(window=4096),)},
    ),
    "smollm2-135m": (
        "llama-2-7b",
        {
            "vocab_size": 49152,
            "d_model": 576,
            "n_heads": 9,
            "n_kv_heads": 3,
            "d_ff": 1536,
            "n_decoder_layers": 30,
            "max_length": 8192,
            "rope": Rope(theta=100000.0),
            "tied": True,
        },
    ),
    "qwen2.5-7b": (
        "llama-7b",
        {
            "vocab_size": 152064,
            "d_model": 3584,
            "n_heads": 28,
            "n_kv_heads": 4,
            "d_ff": 18944,
            "n_decoder_layers": 28,
            "max_length": 131072,
            "rope": Rope(theta=1e6),
            "qkv_bias": True,
        },
    ),
    "qwen2.5-0.5b": (
        "qwen2.5-7b",
        {
            "vocab_size": 151936,
            "d_model": 896,
            "n_heads": 14,
            "n_kv_heads": 2,
            "d_ff": 4864,
            "n_decoder_layers": 24,
            "max_length": 32768,
            "tied": True,
        },
    ),
    "qwen3-8b": (
        "llama-7b",
        {
            "vocab_size": 151936,
            "n_kv_heads": 8,
            "d_ff": 12288,
            "n_decoder_layers": 36,
            "max_length": 40960,
            "rope": Rope(theta=1e6),
            "qk_norm": "head",
        },
    ),
    "qwen3-0.6b": (
        "qwen3-8b",
        {"d_model": 1024, "n_heads": 16, "d_head": 128, "d_ff": 3072, "n_decoder_layers": 28, "tied": True},
    ),
}
