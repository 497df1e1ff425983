"""Gemma: Llama with weights that are added to one, capped scores, and windows; T5Gemma is made of two."""

from __future__ import annotations

from typing import Any

from plait.architecture import EncoderDifferences, LayerType, Rope

RECIPES: dict[str, tuple[str | None, dict[str, Any]]] = {
    # Gemma Team 2024, 2024, 2025. The scales are the roots of the widths as the published code holds them, in float32.
    "gemma-2b": (
        "llama-7b",
        {
            "vocab_size": 256000,
            "d_model": 2048,
            "n_heads": 8,
            "n_kv_heads": 1,
            "d_head": 256,
            "d_ff": 16384,
            "n_decoder_layers": 18,
            "max_length": 8192,
            "norm_weight": "offset",
            "activation": "gelu_tanh",
            "embedding_scale": 45.25483322143555,
            "tied": True,
        },
    ),
    "gemma-2-2b": (
        "gemma-2b",
        {
            "d_model": 2304,
            "n_kv_heads": 4,
            "d_ff": 9216,
            "n_decoder_layers": 26,
            "norm_placement": "sandwich",
            "layer_types": (LayerType(window=4096), LayerType()),
            "attention_softcap": 50.0,
            "logit_softcap": 30.0,
            "embedding_scale": 48.0,
        },
    ),
    # Zhang et al. 2025: two Gemmas, the encoder with a table of its own
    "t5gemma-2b-2b": ("gemma-2-2b", {"n_encoder_layers": 26, "encoder": EncoderDifferences(vocab_size=256000)}),
    "gemma-3-1b": (
        "gemma-2b",
        {
            "vocab_size": 262144,
            "d_model": 1152,
            "n_heads": 4,
            "d_ff": 6912,
            "n_decoder_layers": 26,
            "max_length": 32768,
            "norm_placement": "sandwich",
            "rope": Rope(theta=1e6),
            "layer_types": (*[LayerType(window=512, rope=Rope(theta=10000.0))] * 5, LayerType()),
            "qk_norm": "head",
            "embedding_scale": 33.941123962402344,
        },
    ),
    "gemma-3-270m": (
        "gemma-3-1b",
        {"d_model": 640, "d_ff": 2048, "n_decoder_layers": 18, "embedding_scale": 25.298221588134766},
    ),
}
