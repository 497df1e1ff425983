"""A8 and A9: how often each layer runs while a translation is written, and who sees whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plait.account import account
from plait.architecture import Architecture
from plait.inspection.lab.experiment import Experiment, Finding, Result, compared, numbers
from plait.inspection.lab.figures import Bar, Bars, Matrix
from plait.inspection.lab.making import drawn, one_row
from plait.model import Cache, Transformer, watching
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "towers")
WORDS_WRITTEN, LAYERS = 3, 6
SOURCE, PADDING = (4, 5, 6), 2
A = Architecture(
    vocab_size=16,
    d_model=32,
    n_heads=4,
    d_ff=64,
    n_encoder_layers=LAYERS,
    n_decoder_layers=LAYERS,
    position="sinusoidal",
    embedding_scale=32**0.5,
)


def run(trials: Mapping[str, Any]) -> Result:
    """Three words are translated, with and without a cache, and gradients say who saw whom."""
    model = drawn(A)
    with_cache, without = written(model, cached=True), written(model, cached=False)
    passes = [with_cache["encoder"], with_cache["decoder"]]
    on_paper = account(A).layer_passes(WORDS_WRITTEN)
    sees = {name: seen(model, name) for name in ("encoder", "decoder", "cross")}
    findings = (
        compared("A8", WORDS["cached"], [LAYERS, LAYERS * WORDS_WRITTEN], passes),
        compared("A8", WORDS["uncached"], [6, 18], [without["encoder"], without["decoder"]]),
        compared("A8", WORDS["on_paper"], [6, 18], [on_paper["encoder"], on_paper["decoder"]]),
        compared("A8", WORDS["tokens"], [18, 36], [with_cache["tokens"], without["tokens"]]),
        sight("encoder", sees["encoder"], torch.ones(3, 3)),
        sight("decoder", sees["decoder"], torch.ones(3, 3).tril()),
        sight("cross", sees["cross"], torch.cat((torch.ones(3, 3), torch.zeros(3, PADDING)), 1)),
        Finding(
            id="W8",
            what=WORDS["circulates"],
            claimed=WORDS["changes"],
            measured=WORDS.say(
                "passes",
                cached=with_cache["decoder"],
                uncached=without["decoder"],
                less=with_cache["tokens"],
                more=without["tokens"],
            ),
            holds=with_cache["decoder"] != without["decoder"],
            values=(with_cache["decoder"], without["decoder"]),
        ),
    )
    bars = tuple(
        Bar(name=WORDS[name], value=float(value))
        for name, value in (
            ("encoder_passes", with_cache["encoder"]),
            ("decoder_passes", with_cache["decoder"]),
            ("decoder_passes_uncached", without["decoder"]),
            ("tokens_cached", with_cache["tokens"]),
            ("tokens_uncached", without["tokens"]),
        )
    )
    targets, sources = ("y0", "y1", "y2"), ("x0", "x1", "x2")
    names: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
        "encoder": (sources, sources),
        "decoder": (targets, targets),
        "cross": (targets, (*sources, *["-"] * PADDING)),
    }
    pictures = tuple(
        Matrix(
            title=WORDS[f"figure_{name}"],
            rows=names[name][0],
            columns=names[name][1],
            values=tuple(map(tuple, (field > 0).double().tolist())),
            digits=0,
        )
        for name, field in sees.items()
    )
    return Result(findings=findings, figures=(Bars(title=WORDS["figure"], bars=bars), *pictures))


@torch.no_grad()
def written(model: Transformer, *, cached: bool) -> Counter[str]:
    """How often layers of each tower ran while three words were written, the likeliest each time, and how many tokens
    the decoder's layers read.

    Without a cache of its own words the decoder reads all of them anew at each step: what it kept of them is forgotten,
    and only what it kept of the source stays, which is encoded once either way.
    """
    counts: Counter[str] = Counter()

    def count(name: str, value: Tensor) -> None:
        tower = name.partition(".")[0]
        counts[tower] += 1
        counts["tokens"] += value.shape[1] if tower == "decoder" else 0

    cache = Cache(model.architecture, 1)
    row, source = [1], one_row(SOURCE)
    with watching(model, "*.layers.*.output", change=count):
        for step in range(WORDS_WRITTEN):
            if not cached:
                cache.truncate(0)
            new = one_row(row[-1:] if cached else row)
            logits = model(new, cache=cache, source=source if step == 0 else None)
            row.append(int(logits[0, -1].argmax()))
    return counts


def seen(model: Transformer, which: str) -> Tensor:
    """How much each place's state depends on each token that it might see: the gradient's size, rows are who sees."""
    source = one_row((*SOURCE, *[0] * PADDING))
    mask = source != 0
    inputs, states = {
        "encoder": ("source_embedding.output", "encoder.output"),
        "decoder": ("embedding.output", "decoder.output"),
        "cross": ("source_embedding.output", "decoder.output"),
    }[which]
    found: list[Tensor] = []
    for place in range(3):
        with watching(model, inputs, states, gradients=True) as values:
            model(one_row((1, 2, 3)), source=source, source_mask=mask)
            values[states][0, place].square().sum().backward()
            found.append(values.gradient(inputs)[0].abs().sum(-1))
    field = torch.stack(found)
    return field[:, : len(SOURCE)] if which == "encoder" else field


def sight(which: str, field: Tensor, claimed: Tensor) -> Finding:
    """Who sees whom, exactly: a gradient of zero is one that nobody saw."""
    sees = (field > 0).double()
    return Finding(
        id="A9",
        what=WORDS[f"sees_{which}"],
        claimed=numbers([int(row.sum()) for row in claimed]),
        measured=numbers([int(row.sum()) for row in sees]),
        holds=torch.equal(sees, claimed.double()),
        values=tuple(sees.flatten().tolist()),
    )


EXPERIMENT = Experiment(name="towers", words=WORDS, run=run)
