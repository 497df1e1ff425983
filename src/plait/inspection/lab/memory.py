"""F1 to F3: a feed-forward network is a memory of keys and values (Geva et al. 2021): summed, read, and changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from plait.architecture import Architecture
from plait.inspection.lab import facts, sentences
from plait.inspection.lab.experiment import Experiment, Finding, Result, Trial, number, numbers
from plait.inspection.lab.figures import Bar, Bars, Lines, Series
from plait.inspection.lab.making import drawn
from plait.model.feedforward import ACTIVATIONS, FeedForward
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "memory")
NETWORKS: dict[str, dict[str, Any]] = {
    "relu": {},
    "gelu, no biases": {"activation": "gelu", "ffn_bias": False},
    "gated silu": {"activation": "silu", "gated": True, "ffn_bias": False},
}


def run(trials: Mapping[str, Any]) -> Result:
    """Sums of fresh networks, values of one that learnt sentences, and an edit of one that learnt facts."""
    layers, edits = trials["sentences"], trials["facts"]
    surface, agrees, chance = (layers[key] for key in ("surface", "agreement", "chance"))
    efficacy, paraphrase, neighbourhood = (edits[key] for key in ("efficacy", "paraphrase", "neighbourhood"))
    findings = (
        *(_sum(name, knobs) for name, knobs in NETWORKS.items()),
        Finding(
            id="F2",
            what=WORDS.say("distribution", neurons=f"{layers['neurons']:,}"),
            claimed="1",
            measured=WORDS.say("within", distance=number(layers["off"])),
            holds=layers["off"] < 1e-5,
            values=(layers["off"],),
        ),
        Finding(
            id="F2",
            what=WORDS.say("surface", triggers=sentences.TRIGGERS),
            claimed=WORDS["falls"],
            measured=_percent(surface),
            holds=surface[0] > surface[-1],
            values=tuple(surface),
        ),
        Finding(
            id="F2",
            what=WORDS["agreement"],
            claimed=WORDS["above_chance"],
            measured=WORDS.say("and_chance", shares=_percent(agrees), chance=_percent(chance)),
            holds=all(share > 1.5 * dealt for share, dealt in zip(agrees, chance, strict=True)),
            values=(*agrees, *chance),
        ),
        Finding(
            id="",
            what=WORDS["agreement"],
            claimed=WORDS["rises"],
            measured=_percent(agrees),
            holds=agrees[-1] > agrees[0],
            values=tuple(agrees),
        ),
        Finding(
            id="F3",
            what=WORDS.say("edits", count=len(facts.CAPITALS), known=f"{100 * edits['known']:.0f} %"),
            claimed=WORDS["changes_and_nothing_else"],
            measured=WORDS.say(
                "shares",
                efficacy=f"{100 * efficacy:.0f} %",
                paraphrase=f"{100 * paraphrase:.0f} %",
                neighbourhood=f"{100 * neighbourhood:.1f} %",
            ),
            holds=efficacy > 0.9 and neighbourhood > 0.9 and paraphrase > 0.5,
            values=(efficacy, paraphrase, neighbourhood),
        ),
    )
    lines = tuple(
        Series(name=WORDS[f"line_{key}"], points=tuple((float(i), v) for i, v in enumerate(layers[key])))
        for key in ("surface", "agreement", "chance")
    )
    bars = tuple(
        Bar(name=WORDS[f"bar_{key}"], value=100 * edits[key]) for key in ("efficacy", "paraphrase", "neighbourhood")
    )
    return Result(
        findings=findings,
        figures=(
            Lines(title=WORDS["figure"], across=WORDS["layer"], series=lines, log=False),
            Bars(title=WORDS["figure_edit"], bars=bars),
        ),
    )


def _sum(name: str, knobs: Mapping[str, Any]) -> Finding:
    off = apart(knobs)
    return Finding(
        id="F1",
        what=WORDS.say("sum", network=name),
        claimed=WORDS["exactly"],
        measured=WORDS.say("within", distance=number(off)),
        holds=off < 1e-12,
        values=(off,),
    )


@torch.no_grad()
def apart(knobs: Mapping[str, Any]) -> float:
    """How far a network's output is from the sum over its neurons, each alone: what its key makes of the input, times
    its value."""
    model = drawn(Architecture(vocab_size=4, d_model=16, n_heads=2, d_ff=24, n_decoder_layers=1, **knobs))
    assert model.decoder is not None
    ffn = model.decoder.blocks[0].ffn
    assert isinstance(ffn, FeedForward)
    generator = torch.Generator().manual_seed(0)
    for bias in (bias for bias in (ffn.up.bias, ffn.down.bias) if bias is not None):
        bias.normal_(generator=generator)
    x = torch.randn(8, 16, generator=generator, dtype=torch.float64)
    act = ACTIVATIONS[model.architecture.activation]
    total = torch.zeros_like(x) if ffn.down.bias is None else ffn.down.bias.expand_as(x).clone()
    for i in range(24):
        up = x @ ffn.up.weight[i] + (0 if ffn.up.bias is None else ffn.up.bias[i])
        coefficient = act(up) if ffn.gate is None else act(x @ ffn.gate.weight[i]) * up
        total += coefficient[:, None] * ffn.down.weight[:, i]  # row i of the first matrix, column i of the second
    return float((ffn(x) - total).abs().max())


def _percent(shares: Sequence[float]) -> str:
    return numbers([100 * share for share in shares], 1) + " %"


EXPERIMENT = Experiment(
    name="memory",
    words=WORDS,
    run=run,
    trials=(
        Trial(name="sentences", make=sentences.studied, seconds=16.0),
        Trial(name="facts", make=facts.changed, seconds=6.0),
    ),
)
