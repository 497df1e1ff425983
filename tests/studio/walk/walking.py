"""Walks of tiny models of every kind, in float32, as a page holds them."""

from __future__ import annotations

from functools import cache

import torch

from plait.architecture import Architecture, Classification, Experts
from plait.checkpoint import Checkpoint, DecodeRules
from plait.inspection.walk import Choice, Walk, walk
from plait.studio.walk import walk_page
from plait.text import train_tokenizer
from tests.inspection.making import TEXT, reading, speaking
from tests.models import random_model

SIZE = {"d_model": 24, "n_heads": 4, "n_kv_heads": 2, "d_head": 6, "d_ff": 40}
SHAPES = {
    "encoder-decoder": {"n_encoder_layers": 2, "n_decoder_layers": 3, "position": "learned", "max_length": 70},
    "vector": {"n_encoder_layers": 2, "head": None, "norm_placement": "post", "position": "sinusoidal"},
    "masked": {"n_encoder_layers": 2, "head": "masked", "embedding_norm": True, "head_transform": "gelu", "tied": True},
    "classes": {"n_encoder_layers": 2, "head": Classification(labels=3), "relative_bias": None, "position": "alibi"},
    "experts": {
        "n_decoder_layers": 2,
        "position": "rope",
        "gated": True,
        "experts": Experts(n_experts=6, per_token=2, d_expert=10, d_shared=8),
    },
}
KINDS = ("decoder", *SHAPES)


@cache
def walked(kind: str) -> tuple[Walk, str]:
    """A walk, and what was read."""
    if kind == "decoder":
        return walk(speaking("llama", n_kv_heads=2), "dog bites man"), "dog bites man"
    tokenizer = train_tokenizer([TEXT, "é中"], kind="bytes")
    architecture = Architecture(vocab_size=len(tokenizer), **{**SIZE, **SHAPES[kind]})
    model = random_model(architecture, dtype=torch.float32)
    checkpoint = Checkpoint(architecture=architecture, model=model, tokenizer=tokenizer, rules=DecodeRules(start=1))
    if kind == "encoder-decoder":
        return walk(checkpoint, "dog bites", target="a cat"), "dog bites"
    return walk(checkpoint, reading(architecture)), "some tokens"


def choice_of(kind: str) -> Choice:
    walk, _ = walked(kind)
    return Choice(walk, walk.towers[-1])


def page_of(kind: str, **more) -> str:
    walk, text = walked(kind)
    return walk_page(walk, choice_of(kind), model=f"a <{kind}>", text=text, **more)
