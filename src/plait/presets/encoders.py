"""Encoders: BERT's line, and those of 2024 and 2025 that rotate."""

from __future__ import annotations

from typing import Any

from plait.architecture import Classification, LayerType, RelativeBias, Rope, SharedLayers

RECIPES: dict[str, tuple[str | None, dict[str, Any]]] = {
    # Devlin et al. 2018, uncased
    "bert-base": (
        None,
        {
            "vocab_size": 30522,
            "d_model": 768,
            "n_heads": 12,
            "d_ff": 3072,
            "n_encoder_layers": 12,
            "max_length": 512,
            "norm_eps": 1e-12,
            "norm_placement": "post",
            "position": "learned",
            "token_types": 2,
            "embedding_norm": True,
            "activation": "gelu",
            "head": "masked",
            "head_transform": "gelu",
            "tied": True,
            "logit_bias": True,
        },
    ),
    "bert-large": ("bert-base", {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "n_encoder_layers": 24}),
    # Liu et al. 2019; positions start after the pad id, 1
    "roberta-base": ("bert-base", {"vocab_size": 50265, "norm_eps": 1e-5, "position_offset": 2, "token_types": 1}),
    # Conneau et al. 2020
    "xlm-roberta-base": ("roberta-base", {"vocab_size": 250002}),
    "xlm-roberta-large": (
        "xlm-roberta-base",
        {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "n_encoder_layers": 24},
    ),
    # Martin et al. 2020
    "camembert-base": ("roberta-base", {"vocab_size": 32005}),
    # Song et al. 2020
    "mpnet-base": ("roberta-base", {"vocab_size": 30527, "token_types": 0, "relative_bias": RelativeBias()}),
    # Shoeybi et al. 2019, uncased
    "megatron-bert-345m": ("bert-large", {"vocab_size": 30592, "norm_placement": "pre", "embedding_norm": False}),
    # Sanh et al. 2019, uncased
    "distilbert-base": ("bert-base", {"n_encoder_layers": 6, "token_types": 0}),
    # Clark et al. 2020: the discriminators, which say of every token whether it was replaced
    "electra-base": (
        "bert-base",
        {"head": Classification(labels=1, pooling=None), "tied": False, "logit_bias": False},
    ),
    "electra-small": ("electra-base", {"d_embedding": 128, "d_model": 256, "n_heads": 4, "d_ff": 1024}),
    # Lan et al. 2020, the second version
    "albert-base": (
        "bert-base",
        {
            "vocab_size": 30000,
            "d_embedding": 128,
            "shared_layers": SharedLayers(),
            "activation": "gelu_tanh",
            "head_transform": "gelu_tanh",
        },
    ),
    "albert-xxlarge": ("albert-base", {"d_model": 4096, "n_heads": 64, "d_ff": 16384}),
    # Nussbaum et al. 2024
    "nomic-embed-text-v1.5": (
        None,
        {
            "vocab_size": 30528,
            "d_model": 768,
            "n_heads": 12,
            "d_ff": 3072,
            "n_encoder_layers": 12,
            "max_length": 8192,
            "norm_eps": 1e-12,
            "norm_placement": "post",
            "position": "rope",
            "rope": Rope(theta=1000.0),
            "qkv_bias": False,
            "output_bias": False,
            "activation": "silu",
            "gated": True,
            "ffn_bias": False,
            "embedding_norm": True,
            "token_types": 2,
            "head": None,
        },
    ),
    # Warner et al. 2024
    "modernbert-base": (
        None,
        {
            "vocab_size": 50368,
            "d_model": 768,
            "n_heads": 12,
            "d_ff": 1152,
            "n_encoder_layers": 22,
            "max_length": 8192,
            "norm_bias": False,
            "first_norm": False,
            "position": "rope",
            "rope": Rope(theta=160000.0),
            "layer_types": (LayerType(), *[LayerType(window=64, rope=Rope())] * 2),
            "qkv_bias": False,
            "output_bias": False,
            "activation": "gelu",
            "gated": True,
            "ffn_bias": False,
            "embedding_norm": True,
            "head": "masked",
            "head_transform": "gelu",
            "head_bias": False,
            "tied": True,
            "logit_bias": True,
        },
    ),
    "modernbert-large": ("modernbert-base", {"d_model": 1024, "n_heads": 16, "d_ff": 2624, "n_encoder_layers": 28}),
    # Boizard et al. 2025
    "eurobert-210m": (
        None,
        {
            "vocab_size": 128256,
            "d_model": 768,
            "n_heads": 12,
            "d_ff": 3072,
            "n_encoder_layers": 12,
            "max_length": 8192,
            "norm": "rmsnorm",
            "position": "rope",
            "rope": Rope(theta=250000.0),
            "qkv_bias": False,
            "output_bias": False,
            "activation": "silu",
            "gated": True,
            "ffn_bias": False,
            "head": "masked",
        },
    ),
}
