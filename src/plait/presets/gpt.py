"""GPT-2 and the decoders of before Llama or beside it, most with layer norm."""

from __future__ import annotations

from typing import Any

from plait.architecture import LayerType, Rope

RECIPES: dict[str, tuple[str | None, dict[str, Any]]] = {
    # Radford et al. 2019
    "gpt2": (
        None,
        {
            "vocab_size": 50257,
            "d_model": 768,
            "n_heads": 12,
            "d_ff": 3072,
            "n_decoder_layers": 12,
            "max_length": 1024,
            "position": "learned",
            "activation": "gelu_tanh",
            "tied": True,
        },
    ),
    "gpt2-medium": ("gpt2", {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "n_decoder_layers": 24}),
    "gpt2-large": ("gpt2", {"d_model": 1280, "n_heads": 20, "d_ff": 5120, "n_decoder_layers": 36}),
    "gpt2-xl": ("gpt2", {"d_model": 1600, "n_heads": 25, "d_ff": 6400, "n_decoder_layers": 48}),
    # Brown et al. 2020, table 2.1. Every other layer was banded; how wide was never published, so all see all here.
    "gpt3-175b": (
        "gpt2",
        {"d_model": 12288, "n_heads": 96, "d_ff": 49152, "n_decoder_layers": 96, "max_length": 2048},
    ),
    # Biderman et al. 2023
    "pythia-70m": (
        None,
        {
            "vocab_size": 50304,
            "d_model": 512,
            "n_heads": 8,
            "d_ff": 2048,
            "n_decoder_layers": 6,
            "max_length": 2048,
            "parallel": "separate",
            "position": "rope",
            "rope": Rope(dim=16),
            "activation": "gelu",
        },
    ),
    # Radford et al. 2018
    "openai-gpt": ("gpt2", {"vocab_size": 40478, "max_length": 512, "norm_placement": "post"}),
    # EleutherAI: gpt-neo-125m, gpt-j-6b
    "gpt-neo-125m": (
        "gpt2",
        {
            "max_length": 2048,
            "layer_types": (LayerType(), LayerType(window=256)),
            "qkv_bias": False,
            "attention_scale": 1.0,
        },
    ),
    "gpt-j-6b": (
        "pythia-70m",
        {
            "vocab_size": 50400,
            "d_model": 4096,
            "n_heads": 16,
            "d_ff": 16384,
            "n_decoder_layers": 28,
            "parallel": "shared",
            "rope": Rope(dim=64, interleaved=True),
            "qkv_bias": False,
            "output_bias": False,
            "activation": "gelu_tanh",
            "logit_bias": True,
        },
    ),
    # Zhang et al. 2022
    "opt-125m": (
        "gpt2",
        {"vocab_size": 50272, "max_length": 2048, "position_offset": 2, "activation": "relu"},
    ),
    # BigScience 2022
    "bloom-560m": (
        "gpt2",
        {
            "vocab_size": 250880,
            "d_model": 1024,
            "n_heads": 16,
            "d_ff": 4096,
            "n_decoder_layers": 24,
            "max_length": None,
            "position": "alibi",
            "embedding_norm": True,
        },
    ),
    # mosaicml/mpt-7b
    "mpt-7b": (
        "gpt2",
        {
            "vocab_size": 50432,
            "d_model": 4096,
            "n_heads": 32,
            "d_ff": 16384,
            "n_decoder_layers": 32,
            "max_length": 2048,
            "norm_bias": False,
            "position": "alibi",
            "qkv_bias": False,
            "output_bias": False,
            "activation": "gelu",
            "ffn_bias": False,
        },
    ),
    # tiiuae/falcon-7b
    "falcon-7b": (
        "pythia-70m",
        {
            "vocab_size": 65024,
            "d_model": 4544,
            "n_heads": 71,
            "n_kv_heads": 1,
            "d_ff": 18176,
            "n_decoder_layers": 32,
            "parallel": "shared",
            "rope": Rope(),
            "qkv_bias": False,
            "output_bias": False,
            "ffn_bias": False,
            "tied": True,
        },
    ),
    # microsoft/phi-2
    "phi-2": (
        "pythia-70m",
        {
            "vocab_size": 51200,
            "d_model": 2560,
            "n_heads": 32,
            "d_ff": 10240,
            "n_decoder_layers": 32,
            "parallel": "shared",
            "rope": Rope(dim=32),
            "activation": "gelu_tanh",
            "logit_bias": True,
        },
    ),
    # stabilityai/stablelm-2-1_6b
    "stablelm-2-1.6b": (
        "llama-2-7b",
        {
            "vocab_size": 100352,
            "d_model": 2048,
            "d_ff": 5632,
            "n_decoder_layers": 24,
            "norm": "layernorm",
            "rope": Rope(dim=16),
            "qkv_bias": True,
        },
    ),
    # bigcode/starcoder2-3b
    "starcoder2-3b": (
        "mistral-7b",
        {
            "vocab_size": 49152,
            "d_model": 3072,
            "n_heads": 24,
            "n_kv_heads": 2,
            "d_ff": 12288,
            "n_decoder_layers": 30,
            "max_length": 16384,
            "norm": "layernorm",
            "rope": Rope(theta=999999.4420358813),
            "qkv_bias": True,
            "output_bias": True,
            "activation": "gelu_tanh",
            "gated": False,
            "ffn_bias": True,
            "tied": True,
        },
    ),
}
