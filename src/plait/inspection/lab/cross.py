"""Cross-attention is the only way from the source to the target: without it every source begins alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.inspection.lab.experiment import Experiment, Finding, Result, number
from plait.inspection.lab.figures import Matrix
from plait.inspection.lab.making import drawn
from plait.model import Transformer, watching
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "cross")
SOURCES, LENGTH, VOCABULARY = 32, 6, 16
SHOWN = 8


@torch.no_grad()
def run(trials: Mapping[str, Any]) -> Result:
    """The first word's distribution over many sources, with cross-attention and with what it adds at zero."""
    a = Architecture(
        vocab_size=VOCABULARY,
        d_model=32,
        n_heads=4,
        d_ff=64,
        n_encoder_layers=3,
        n_decoder_layers=3,
        position="sinusoidal",
        embedding_scale=32**0.5,
    )
    model = drawn(a)
    sources = torch.randint(1, VOCABULARY, (SOURCES, LENGTH), generator=torch.Generator().manual_seed(0))
    whole, zeroed = first_word(model, sources), without_bridge(model, sources)
    findings = (
        alike("zeroed", apart(zeroed), True),
        alike("whole", apart(whole), False),
    )
    pictures = tuple(
        Matrix(
            title=WORDS[f"figure_{name}"],
            rows=tuple(WORDS.say("source", number=i + 1) for i in range(SHOWN)),
            columns=tuple(map(str, range(VOCABULARY))),
            values=tuple(map(tuple, found[:SHOWN].tolist())),
        )
        for name, found in (("whole", whole), ("zeroed", zeroed))
    )
    return Result(findings=findings, figures=pictures)


def first_word(model: Transformer, sources: Tensor) -> Tensor:
    """Its distribution for every source, ``(b, v)``."""
    start = torch.zeros(len(sources), 1, dtype=torch.int64)
    return model(start, source=sources)[:, 0].softmax(-1)


def without_bridge(model: Transformer, sources: Tensor) -> Tensor:
    """The same, where cross-attention adds nothing."""
    found: list[Tensor] = []
    with watching(model, "decoder.layers.*.cross_branch", change=lambda _, value: torch.zeros_like(value)):
        found.append(first_word(model, sources))
    return found[0]


def apart(distributions: Tensor) -> float:
    """How much a probability differs from source to source, at most."""
    return float((distributions.amax(0) - distributions.amin(0)).max())


def alike(key: str, distance: float, claimed: bool) -> Finding:
    """Whether all sources begin alike."""
    return Finding(
        id="",
        what=WORDS.say(key, sources=SOURCES),
        claimed=WORDS["same" if claimed else "different"],
        measured=WORDS.say("differ", distance=number(distance)),
        holds=distance < 1e-12 if claimed else distance > 1e-2,
        values=(distance,),
    )


EXPERIMENT = Experiment(name="cross", words=WORDS, run=run)
