"""D3: with sublayers whose outputs start at zero, a pre-norm block is the identity, and a post-norm block is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from plait.architecture import Architecture
from plait.inspection.lab.experiment import Experiment, Finding, Result, number
from plait.inspection.lab.figures import Bar, Bars
from plait.inspection.passes import onwards
from plait.model import Transformer, initialize
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "identity")
PLACEMENTS = ("pre", "post", "sandwich", "branch")


def run(trials: Mapping[str, Any]) -> Result:
    """A block of each placement of norms."""
    moves = {placement: moved(placement) for placement in PLACEMENTS}
    findings = tuple(
        Finding(
            id="D3",
            what=WORDS.say("block", placement=placement),
            claimed=WORDS["not_identity" if placement == "post" else "identity"],
            measured=WORDS.say("moves", distance=number(moves[placement])),
            holds=(moves[placement] > 0.1) if placement == "post" else moves[placement] == 0,
            values=(moves[placement],),
        )
        for placement in PLACEMENTS
    )
    bars = tuple(Bar(name=placement, value=value) for placement, value in moves.items())
    return Result(findings=findings, figures=(Bars(title=WORDS["figure"], bars=bars),))


@torch.no_grad()
def moved(placement: str) -> float:
    """How far a fresh block moves what it is given, at most."""
    a = Architecture(
        vocab_size=4,
        d_model=32,
        n_heads=4,
        d_ff=64,
        n_decoder_layers=1,
        norm_placement=placement,  # type: ignore[arg-type]
        final_norm=False,
    )
    model = Transformer(a).double().eval()
    initialize(model, "xavier", zero_residual=True)
    states = 3 * torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return float((onwards(model, states, 0) - states).abs().max())


EXPERIMENT = Experiment(name="identity", words=WORDS, run=run)
