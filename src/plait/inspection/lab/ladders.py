"""Ladders: from one published architecture to another, a step for each thing that changes, as data.

The bottom and the top are presets made small; a step gives some knobs the values that they have at the top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plait.architecture import Architecture
from plait.model.initialization import Scheme
from plait.presets import preset

LENGTH = 32
SMALL: dict[str, Any] = {"d_model": 64, "n_heads": 4, "embedding_scale": 8.0}  # the stream begins at a deviation of 1


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A step: the knobs that take the values they have at the top, and a way to draw fresh weights, where that is
    another. ``alone``: its loss is of another kind than that of the step before."""

    name: str
    knobs: tuple[str, ...] = ()
    scheme: Scheme | None = None
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """From one published architecture to another; ``stream`` is what is learnt, by the seed and whether it was held
    out, for a kind of architecture."""

    name: str
    bottom: str
    top: str
    sizes: Mapping[str, Any]  # of both
    top_sizes: Mapping[str, Any]  # of the top alone
    rungs: tuple[Rung, ...]
    lr: float

    @property
    def comparable(self) -> list[str]:
        """The rungs whose losses are of one kind: from the last that begins another on."""
        alone = [i for i, rung in enumerate(self.rungs) if rung.alone]
        return [rung.name for rung in self.rungs[alone[-1] if alone else 0 :]]

    @property
    def target(self) -> Architecture:
        """The architecture at the top, made small."""
        return preset(self.top).replace(**{**self.sizes, **self.top_sizes})

    def steps(self) -> list[tuple[Rung, Architecture, Scheme]]:
        """Every rung with its architecture and how its weights are drawn."""
        architecture, scheme = preset(self.bottom).replace(**self.sizes), self.rungs[0].scheme or "xavier"
        found: list[tuple[Rung, Architecture, Scheme]] = []
        for rung in self.rungs:
            architecture = architecture.replace(**{knob: getattr(self.target, knob) for knob in rung.knobs})
            scheme = rung.scheme or scheme
            found.append((rung, architecture, scheme))
        return found


BIASES = ("qkv_bias", "output_bias", "ffn_bias")
PAPER: dict[str, Any] = {**SMALL, "d_ff": 256, "n_encoder_layers": 2, "n_decoder_layers": 2}
LADDERS = (
    Ladder(
        name="llama",
        bottom="gpt2",
        top="llama-2-70b",
        sizes={**SMALL, "d_ff": 256, "n_decoder_layers": 3, "max_length": LENGTH},
        top_sizes={"d_ff": 168, "n_kv_heads": 2},
        rungs=(
            Rung(name="gpt2", scheme="xavier"),
            Rung(name="llama-rope", knobs=("position",)),
            Rung(name="llama-rmsnorm", knobs=("norm",)),
            Rung(name="llama-biases", knobs=BIASES),
            Rung(name="llama-gated", knobs=("activation", "gated", "d_ff")),
            Rung(name="llama-untied", knobs=("tied",)),
            Rung(name="llama-grouped", knobs=("n_kv_heads",)),
        ),
        lr=1e-2,
    ),
    Ladder(
        name="t5",
        bottom="vaswani-base",
        top="t5-base",
        sizes=PAPER,
        top_sizes={"embedding_scale": 1.0, "logit_scale": 64**-0.5, "d_head": 16},
        rungs=(
            Rung(name="2017", scheme="xavier"),
            Rung(name="t5-pre", knobs=("norm_placement",)),
            Rung(name="t5-rmsnorm", knobs=("norm",)),
            Rung(name="t5-biases", knobs=BIASES),
            Rung(name="t5-buckets", knobs=("position", "relative_bias")),
            Rung(name="t5-scales", knobs=("embedding_scale", "attention_scale", "logit_scale"), scheme="t5"),
        ),
        lr=5e-3,
    ),
    Ladder(
        name="bert",
        bottom="vaswani-base",
        top="bert-base",
        sizes=PAPER,
        top_sizes={"n_decoder_layers": 0, "head": "masked", "embedding_scale": 1.0, "max_length": LENGTH},
        rungs=(
            Rung(name="2017", scheme="xavier"),
            Rung(name="bert-encoder", knobs=("n_decoder_layers", "head"), alone=True),
            Rung(name="bert-learned", knobs=("position", "max_length", "embedding_scale")),
            Rung(name="bert-gelu", knobs=("activation",)),
            Rung(name="bert-embedding", knobs=("embedding_norm", "token_types", "norm_eps")),
            Rung(name="bert-head", knobs=("head_transform", "logit_bias")),
        ),
        lr=5e-3,
    ),
)
