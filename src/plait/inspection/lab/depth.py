"""Depth: pre-norm, post-norm and DeepNorm from 6 to 48 layers, with and without warm-up: gradients, and who trains."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from plait.architecture import Architecture
from plait.inspection.lab import corpus
from plait.inspection.lab.experiment import Experiment, Finding, Result, Trial, number, numbers
from plait.inspection.lab.figures import Lines, Matrix, Series
from plait.inspection.lab.learning import learn
from plait.inspection.lab.residual import by_layer
from plait.model import Transformer, initialize
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "depth")
DEPTHS, WARMUPS, STEPS, LAST = (6, 12, 24, 48), (0, 25), 80, 10
WIDTH, LENGTH = 32, 32
PLACEMENTS = ("pre", "post", "deepnorm")
RATES = {"calm": 3e-3, "bold": 3e-2}  # learning rates
CASES = (*((placement, "calm") for placement in PLACEMENTS), ("pre", "bold"))
LEARNT = 0.1  # nats below what the frequencies of words give: from there on a model has learnt


def knobs(placement: str, depth: int) -> dict[str, Any]:
    """Where norms stand; of DeepNorm the alpha of a decoder of that depth (Wang et al. 2022, table 1)."""
    if placement == "pre":
        return {}
    return {"norm_placement": "post", "skip_scale": (2 * depth) ** 0.25 if placement == "deepnorm" else 1.0}


def train_one(placement: str, rate: str, depth: int, warmup: int, steps: int = STEPS) -> dict[str, float]:
    """The mean loss of the last steps of a short training; infinite where it broke."""
    architecture = Architecture(
        vocab_size=len(corpus.english()),
        d_model=WIDTH,
        n_heads=2,
        d_ff=2 * WIDTH,
        n_decoder_layers=depth,
        position="learned",
        max_length=LENGTH,
        embedding_scale=WIDTH**0.5,
        tied=True,
        **knobs(placement, depth),
    )
    model = Transformer(architecture)
    initialize(model, "deepnorm" if placement == "deepnorm" else "xavier")
    learnt = learn(model, corpus.text(LENGTH, 16), steps=steps, lr=RATES[rate], warmup=warmup)
    return {"loss": learnt.last(LAST)}


@cache
def frequencies() -> float:
    """Nats a token for who knows only how frequent each is: the entropy of the text."""
    tokens = corpus.text(LENGTH, 1).tokens
    counts = np.bincount(tokens.read(0, len(tokens)))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def run(trials: Mapping[str, Any]) -> Result:
    """Losses of every case, and gradients of fresh stacks."""
    losses = {
        (*case, warmup): [trials[name(*case, depth, warmup)]["loss"] for depth in DEPTHS]
        for case in CASES
        for warmup in WARMUPS
    }
    known = frequencies() - LEARNT
    cold, warm = (losses["pre", "bold", warmup] for warmup in WARMUPS)
    helped = [a - b for a, b in zip(cold, warm, strict=True)]
    findings = (
        trains("pre", losses, all(learnt(losses, "pre", known))),
        trains("post", losses, not any(learnt(losses, "post", known)[-2:])),
        trains("deepnorm", losses, all(learnt(losses, "deepnorm", known))),
        Finding(
            id="W7",
            what=WORDS.say("circulates", depths=numbers(DEPTHS), rate=number(RATES["bold"], 2)),
            claimed=WORDS["no_better"],
            measured=WORDS.say("without_with", cold=numbers(cold, 2), warm=numbers(warm, 2)),
            holds=max(helped) < 0.1,
            values=(*cold, *warm),
        ),
    )
    rows = list(losses)
    field = Matrix(
        title=WORDS.say("figure", frequencies=number(frequencies(), 2)),
        rows=tuple(
            WORDS.say("case", placement=WORDS[placement], rate=number(RATES[rate], 3), warmup=warmup)
            for placement, rate, warmup in rows
        ),
        columns=tuple(WORDS.say("layers", depth=depth) for depth in DEPTHS),
        values=tuple(tuple(losses[row]) for row in rows),
        digits=2,
    )
    return Result(findings=findings, figures=(field, gradients()))


def learnt(losses: Mapping[Any, list[float]], placement: str, known: float) -> list[bool]:
    """By depth, whether a placement of norms learnt more than ``known``, with warm-up or without."""
    cold, warm = (losses[placement, "calm", warmup] for warmup in WARMUPS)
    return [min(pair) < known for pair in zip(cold, warm, strict=True)]


def trains(placement: str, losses: Mapping[Any, list[float]], as_claimed: bool) -> Finding:
    """Whether a placement of norms trains, by depth."""
    cold, warm = (losses[placement, "calm", warmup] for warmup in WARMUPS)
    return Finding(
        id="",
        what=WORDS.say("trains", placement=WORDS[placement], depths=numbers(DEPTHS), rate=number(RATES["calm"], 3)),
        claimed=WORDS[f"claim_{placement}"],
        measured=WORDS.say("without_with", cold=numbers(cold, 2), warm=numbers(warm, 2)),
        holds=as_claimed,
        values=(*cold, *warm),
    )


def gradients() -> Lines:
    """Of fresh stacks, the gradient behind each layer as a share of that behind the last."""
    deepest = DEPTHS[-1]
    norms = {
        placement: by_layer(
            knobs(placement, deepest), deepest, scheme="deepnorm" if placement == "deepnorm" else "xavier"
        )
        for placement in PLACEMENTS
    }
    return Lines(
        title=WORDS.say("gradients", depth=deepest),
        across=WORDS["layer"],
        series=tuple(
            Series(name=WORDS[placement], points=tuple((float(i), v / found[-1]) for i, v in enumerate(found, 1)))
            for placement, found in norms.items()
        ),
        log=True,
    )


def name(placement: str, rate: str, depth: int, warmup: int) -> str:
    """A trial's."""
    return f"{placement}-{rate}-{depth}-{warmup}"


EXPERIMENT = Experiment(
    name="depth",
    words=WORDS,
    run=run,
    trials=tuple(
        Trial(
            name=name(*case, depth, warmup),
            make=partial(train_one, *case, depth, warmup),
            seconds=1 + 0.22 * depth,
        )
        for case in CASES
        for depth in DEPTHS
        for warmup in WARMUPS
    ),
)
