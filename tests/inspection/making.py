"""Tiny checkpoints of any architecture, to look into and to edit."""

from __future__ import annotations

import torch

from plait.architecture import Architecture
from plait.checkpoint import Checkpoint, DecodeRules
from plait.inspection import Reading, Trace, trace
from plait.text import train_tokenizer
from tests.models import random_model, random_tokens, tiny

TEXT = "the dog of anna is old. the cat of ben is new. dora says that the sun is far, and the moon is near."
SHAPES = {
    "gpt2": {"position": "learned", "max_length": 64},
    "llama": {
        "position": "rope",
        "norm": "rmsnorm",
        "gated": True,
        "activation": "silu",
        "ffn_bias": False,
        "tied": True,
    },
    "gemma2": {
        "position": "rope",
        "norm": "rmsnorm",
        "norm_placement": "sandwich",
        "gated": True,
        "residual_scale": 0.7,
    },
    "parallel": {"position": "rope", "parallel": "shared"},
}


def made(architecture: Architecture) -> Checkpoint:
    """Random weights, no tokenizer."""
    return Checkpoint(architecture=architecture, model=random_model(architecture))


def reading(architecture: Architecture, n: int = 7, m: int = 5) -> Reading:
    """Random tokens."""
    source = random_tokens(1, m, seed=2) if architecture.kind == "encoder-decoder" else None
    tokens = random_tokens(1, n)
    return Reading(
        tokens=tokens,
        texts=tuple(map(str, tokens[0].tolist())),
        source=source,
        source_texts=() if source is None else tuple(map(str, source[0].tolist())),
    )


def traced(architecture: Architecture) -> Trace:
    """Everything of one pass."""
    return trace(made(architecture), reading(architecture))


def speaking(name: str = "gpt2", **more) -> Checkpoint:
    """A decoder with a small tokenizer, for which " is" is one token: one of ``SHAPES``, or a preset at tiny size."""
    tokenizer = train_tokenizer([TEXT] * 3, kind="byte-bpe", vocab_size=290)
    if name in SHAPES:
        size = {"d_model": 48, "n_heads": 4, "d_ff": 20, "n_decoder_layers": 3}
        architecture = Architecture(vocab_size=len(tokenizer), **{**size, **SHAPES[name], **more})
    else:
        architecture = tiny(name).replace(vocab_size=len(tokenizer), **more)
    model = random_model(architecture, dtype=torch.float32)
    return Checkpoint(architecture=architecture, model=model, tokenizer=tokenizer, rules=DecodeRules(bos=tokenizer.bos))
