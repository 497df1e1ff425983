"""Encoder-decoders: the Transformer of 2017 with Marian's and BART's line, then T5's."""

from __future__ import annotations

from math import sqrt
from typing import Any

from plait.architecture import RelativeBias, Sinusoid

RECIPES: dict[str, tuple[str | None, dict[str, Any]]] = {
    # Vaswani et al. 2017, table 3; 37,000 shared byte pairs of WMT 2014 English-German. The paper gives no epsilon:
    # this is tensor2tensor's.
    "vaswani-base": (
        None,
        {
            "vocab_size": 37000,
            "d_model": 512,
            "n_heads": 8,
            "d_ff": 2048,
            "n_encoder_layers": 6,
            "n_decoder_layers": 6,
            "norm_placement": "post",
            "norm_eps": 1e-6,
            "position": "sinusoidal",
            "embedding_scale": sqrt(512),
            "tied": True,
        },
    ),
    "vaswani-big": ("vaswani-base", {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "embedding_scale": sqrt(1024)}),
    # Helsinki-NLP/opus-mt-en-de
    "marian-en-de": (
        "vaswani-base",
        {
            "vocab_size": 58101,
            "norm_eps": 1e-5,
            "sinusoid": Sinusoid(layout="halves"),
            "max_length": 512,
            "activation": "silu",
            "logit_bias": True,
        },
    ),
    # Lewis et al. 2019
    "bart-base": (
        "vaswani-base",
        {
            "vocab_size": 50265,
            "d_model": 768,
            "n_heads": 12,
            "d_ff": 3072,
            "norm_eps": 1e-5,
            "position": "learned",
            "position_offset": 2,
            "max_length": 1024,
            "activation": "gelu",
            "embedding_scale": 1.0,
            "embedding_norm": True,
            "logit_bias": True,
        },
    ),
    "bart-large": (
        "bart-base",
        {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "n_encoder_layers": 12, "n_decoder_layers": 12},
    ),
    # Ahmad et al. 2021
    "plbart-base": ("bart-base", {"vocab_size": 50005, "embedding_scale": sqrt(768)}),
    # Tang et al. 2020
    "mbart-large-50": ("bart-large", {"vocab_size": 250054, "norm_placement": "pre", "embedding_scale": sqrt(1024)}),
    # Roller et al. 2020, distilled
    "blenderbot-400m": (
        "mbart-large-50",
        {
            "vocab_size": 8008,
            "d_model": 1280,
            "n_heads": 32,
            "d_ff": 5120,
            "n_encoder_layers": 2,
            "position_offset": 0,
            "max_length": 128,
            "embedding_norm": False,
            "embedding_scale": sqrt(1280),
        },
    ),
    # Zhang et al. 2019
    "pegasus-large": (
        "mbart-large-50",
        {
            "vocab_size": 96103,
            "n_encoder_layers": 16,
            "n_decoder_layers": 16,
            "position": "sinusoidal",
            "position_offset": 0,
            "sinusoid": Sinusoid(layout="halves"),
            "activation": "relu",
            "embedding_norm": False,
        },
    ),
    # Fan et al. 2020
    "m2m100-418m": (
        "pegasus-large",
        {
            "vocab_size": 128112,
            "n_encoder_layers": 12,
            "n_decoder_layers": 12,
            "position_offset": 2,
            "sinusoid": Sinusoid(layout="halves", denominator="half_minus_one"),
            "logit_bias": False,
        },
    ),
    # NLLB Team 2022
    "nllb-200-distilled-600m": ("m2m100-418m", {"vocab_size": 256206}),
    # Raffel et al. 2020; the checkpoints' table is padded to 32,128 rows
    "t5-small": (
        None,
        {
            "vocab_size": 32128,
            "d_model": 512,
            "n_heads": 8,
            "d_head": 64,
            "d_ff": 2048,
            "n_encoder_layers": 6,
            "n_decoder_layers": 6,
            "norm": "rmsnorm",
            "norm_eps": 1e-6,
            "relative_bias": RelativeBias(),
            "attention_scale": 1.0,
            "qkv_bias": False,
            "output_bias": False,
            "ffn_bias": False,
            "tied": True,
            "logit_scale": 512**-0.5,
        },
    ),
    "t5-base": (
        "t5-small",
        {
            "d_model": 768,
            "n_heads": 12,
            "d_ff": 3072,
            "n_encoder_layers": 12,
            "n_decoder_layers": 12,
            "logit_scale": 768**-0.5,
        },
    ),
    "t5-large": (
        "t5-base",
        {
            "d_model": 1024,
            "n_heads": 16,
            "d_ff": 4096,
            "n_encoder_layers": 24,
            "n_decoder_layers": 24,
            "logit_scale": 1024**-0.5,
        },
    ),
    "t5-v1.1-small": (
        "t5-small",
        {
            "n_heads": 6,
            "d_ff": 1024,
            "n_encoder_layers": 8,
            "n_decoder_layers": 8,
            "activation": "gelu_tanh",
            "gated": True,
            "tied": False,
            "logit_scale": 1.0,
        },
    ),
    "t5-v1.1-base": (
        "t5-v1.1-small",
        {"d_model": 768, "n_heads": 12, "d_ff": 2048, "n_encoder_layers": 12, "n_decoder_layers": 12},
    ),
    "t5-v1.1-large": (
        "t5-v1.1-base",
        {"d_model": 1024, "n_heads": 16, "d_ff": 2816, "n_encoder_layers": 24, "n_decoder_layers": 24},
    ),
    # Chung et al. 2022: the same shape, further trained
    "flan-t5-base": ("t5-v1.1-base", {}),
    # Xue et al. 2021, over bytes: 256 of them, three special ids, and 125 that stand for gaps
    "byt5-small": (
        "t5-v1.1-small",
        {"vocab_size": 384, "d_model": 1472, "d_ff": 3584, "n_encoder_layers": 12, "n_decoder_layers": 4},
    ),
    # Xue et al. 2020
    "mt5-small": ("t5-v1.1-small", {"vocab_size": 250112}),
    "mt5-base": ("t5-v1.1-base", {"vocab_size": 250112}),
    # Chung et al. 2023
    "umt5-small": ("mt5-small", {"vocab_size": 256384, "relative_bias": RelativeBias(per_layer=True)}),
}
