"""Tiny checkpoints of any architecture, to look into."""

from __future__ import annotations

from plait.architecture import Architecture
from plait.checkpoint import Checkpoint
from plait.inspection import Reading, Trace, trace
from tests.models import random_model, random_tokens


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
