"""Presets: published architectures by name, each as what it changes in a relative.

The values are those of the published ``config.json`` (or of the paper, where there is none). Widths that a recipe's
neighbour leaves alone are not repeated: read a line together with the lines it names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from math import sqrt
from typing import Any

from plait.architecture import (
    Architecture,
    Classification,
    EncoderDifferences,
    Experts,
    LayerType,
    RelativeBias,
    Rope,
    RopeScaling,
    SharedLayers,
    Sinusoid,
)
from plait.words import nearest


class PresetError(ValueError):
    """A name that no preset has; the message gives the nearest."""


# name: (the relative it starts from, what differs)
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
    # Mixtures of experts. mistralai: Mixtral-8x7B-v0.1, Mixtral-8x22B-v0.1
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


def knobs(name: str) -> dict[str, Any]:
    """The fields of a preset, its relatives' included; what is not here is at its default."""
    relative, differences = RECIPES[name]
    return {**(knobs(relative) if relative else {}), **differences}


@cache
def preset(name: str) -> Architecture:
    """The published architecture of that name; ``PresetError`` names the nearest where there is none."""
    if name not in RECIPES:
        near = nearest(name, RECIPES)
        hint = f"did you mean {near!r}?" if near else f"the presets are {', '.join(RECIPES)}."
        raise PresetError(f"{name!r}: there is no such preset; {hint}")
    return Architecture(**knobs(name))


class _Presets(Mapping[str, Architecture]):
    """Every preset by name, built when it is asked for."""

    def __getitem__(self, name: str) -> Architecture:
        if name not in RECIPES:
            raise KeyError(name)
        return preset(name)

    def __iter__(self) -> Iterator[str]:
        return iter(RECIPES)

    def __len__(self) -> int:
        return len(RECIPES)


PRESETS: Mapping[str, Architecture] = _Presets()
