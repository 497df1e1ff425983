"""A4 and A7: a table for both ends of a model, or one for each: how many parameters, and what it does to a loss."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from plait.account import account
from plait.architecture import Architecture
from plait.inspection.lab import corpus
from plait.inspection.lab.experiment import Experiment, Finding, Result, Trial, compared, number
from plait.inspection.lab.figures import Bar, Bars
from plait.inspection.lab.learning import judged, learn
from plait.inspection.lab.seeds import spread
from plait.inspection.lab.share import BASE, live, projections
from plait.model import Transformer, initialize
from plait.pages.words import Words
from plait.presets import preset

WORDS = Words.of("plait.inspection.lab", "tying")
LLAMA, GUESS = "llama-2-7b", 500_000_000
UNTIED = ("llama-2-7b", "mistral-7b")
TIED = ("gpt2", "bert-base", "t5-base", "marian-en-de", "llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-2-2b")
SEEDS, STEPS, LENGTH = 3, 150, 32
KINDS = {"tied": True, "untied": False}


def counts() -> tuple[Finding, ...]:
    """What live models hold at both ends."""
    base, apart = live(BASE), live(BASE.replace(tied=False))
    table = base["embedding.tokens.weight"]
    both = [projections(base) + table, projections(apart) + table + apart["head.output.weight"]]
    llama = live(preset(LLAMA))
    rows = llama["embedding.tokens.weight"]
    saved = sum(llama.values()) - sum(live(preset(LLAMA).replace(tied=True)).values())
    heads = [sum(has_head(name) for name in names) for names in (UNTIED, TIED)]
    return (
        compared("A4", WORDS["table"], [18_944_000], [table]),
        compared("A4", WORDS["both_ends"], [62_984_192, 81_928_192], both),
        compared("A7", WORDS["llama"], [6_738_415_616, 131_072_000], [sum(llama.values()), rows]),
        compared("A7", WORDS["percent"], [1.945], [100 * rows / sum(llama.values())], digits=3),
        compared("A7", WORDS["own_head"], [131_072_000], [llama.get("head.output.weight", 0)]),
        Finding(
            id="W2",
            what=WORDS["saves"],
            claimed=WORDS.say("millions", count=number(GUESS / 1e6), share="10–20"),
            measured=WORDS.say(
                "millions", count=number(saved / 1e6, 1), share=f"{100 * saved / sum(llama.values()):.1f}"
            ),
            holds=saved > 0.9 * GUESS,
            values=(saved, saved / sum(llama.values())),
        ),
        Finding(
            id="W3",
            what=WORDS.say("ties", names=", ".join(UNTIED)),
            claimed=WORDS.say("have_none", count=0, of=len(UNTIED)),
            measured=WORDS.say("have", count=heads[0], of=len(UNTIED), others=heads[1], of_others=len(TIED)),
            holds=heads[0] == 0,
            values=tuple(map(float, heads)),
        ),
    )


def has_head(name: str) -> bool:
    """Whether a published architecture has an output matrix of its own."""
    return "head.output.weight" in live(preset(name))


def architecture(kind: str) -> Architecture:
    """A small decoder, tied or not."""
    return Architecture(
        vocab_size=len(corpus.english()),
        d_model=64,
        n_heads=4,
        d_ff=256,
        n_decoder_layers=3,
        position="rope",
        activation="gelu",
        embedding_scale=8.0,
        tied=KINDS[kind],
    )


def train_one(kind: str, seed: int, steps: int = STEPS) -> dict[str, float]:
    """Held-out loss after a short training."""
    model = Transformer(architecture(kind))
    initialize(model, "xavier", seed=seed)
    learn(model, corpus.text(LENGTH, 16, seed=seed), steps=steps, lr=1e-2, warmup=steps // 10, seed=seed)
    return {"loss": judged(model, corpus.text(LENGTH, 16, held_out=True))}


def run(trials: Mapping[str, Any]) -> Result:
    """Counts, then losses of both."""
    losses = {kind: spread([trials[f"{kind}-{seed}"]["loss"] for seed in range(SEEDS)]) for kind in KINDS}
    sizes = {kind: account(architecture(kind)).parameters for kind in KINDS}
    learnt = Finding(
        id="",
        what=WORDS.say("loss", tied=f"{sizes['tied']:,}", untied=f"{sizes['untied']:,}"),
        claimed=WORDS["no_worse"],
        measured=f"{losses['tied'].said()}; {losses['untied'].said()}",
        holds=losses["tied"].mean <= losses["untied"].mean + 0.1,
        values=(losses["tied"].mean, losses["untied"].mean),
    )
    small = Bars(
        title=WORDS["figure_loss"],
        bars=tuple(
            Bar(name=WORDS[kind], value=loss.mean, low=loss.low, high=loss.high) for kind, loss in losses.items()
        ),
    )
    shares = Bars(
        title=WORDS["figure"],
        bars=tuple(
            Bar(name=name, value=100 * account(preset(name)).by_part["embedding"] / account(preset(name)).parameters)
            for name in (LLAMA, "mistral-7b", "gpt2", "bert-base", "llama-3.2-1b", "qwen2.5-0.5b", "gemma-2-2b")
        ),
    )
    return Result(findings=(*counts(), learnt), figures=(shares, small))


EXPERIMENT = Experiment(
    name="tying",
    words=WORDS,
    run=run,
    trials=tuple(
        Trial(name=f"{kind}-{seed}", make=partial(train_one, kind, seed), seconds=7.0)
        for kind in KINDS
        for seed in range(SEEDS)
    ),
)
