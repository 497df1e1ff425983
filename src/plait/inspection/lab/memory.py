"""F1 to F3: a feed-forward network is a memory of keys and values (Geva et al. 2021): summed, read, and changed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.checkpoint import Checkpoint
from plait.data.packing import CausalStream
from plait.data.store import tokenised
from plait.inspection.lab import corpus, facts
from plait.inspection.lab.experiment import Experiment, Finding, Result, Trial, number, numbers
from plait.inspection.lab.figures import Bar, Bars, Lines, Series
from plait.inspection.lab.learning import learn
from plait.inspection.lab.making import drawn
from plait.inspection.memory import study
from plait.inspection.memory.study import Layer
from plait.model import Transformer, initialize
from plait.model.feedforward import ACTIVATIONS, FeedForward
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "memory")
LAYERS, STEPS, SENTENCES, LENGTH = 4, 250, 4000, 32
TRIGGERS = 10
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
            what=WORDS.say("surface", triggers=TRIGGERS),
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


# F1


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


# F2


def sentences(steps: int = STEPS) -> dict[str, Any]:
    """Train a decoder on sentences, and study its memories over them."""
    tokenizer = corpus.english()
    architecture = Architecture(
        vocab_size=len(tokenizer),
        d_model=64,
        n_heads=4,
        d_ff=128,
        n_decoder_layers=LAYERS,
        position="learned",
        max_length=LENGTH,
        activation="relu",
        tied=True,
    )
    model = Transformer(architecture)
    initialize(model, "gpt2")
    checkpoint = Checkpoint(architecture=architecture, model=model, tokenizer=tokenizer)
    with tempfile.TemporaryDirectory(prefix="plait-lab-") as folder:
        file = Path(folder) / "sentences.txt"
        file.write_text("\n".join(pair.en for pair in corpus.sentences()[0][:SENTENCES]), encoding="utf-8")
        tokens = tokenised(file, tokenizer, before=(), after=(), cache=folder)
        stream = CausalStream(tokens=tokens, length=LENGTH, rows=16, packing="stream")
        learn(model, stream, steps=steps, lr=5e-3, warmup=steps // 10)
        model.eval()
        found = study(checkpoint, [file], keep=TRIGGERS, length=LENGTH, cache=folder)
        lane = found.corpus.lanes["decoder"]
        words = [lane.tokens(layer.networks[0].triggers.places) for layer in found.layers]
        return {
            "neurons": sum(layer.n_neurons for layer in found.layers),
            "off": max(_off(found.readers["decoder"].table, model, layer) for layer in found.layers),
            "surface": [_common(each) for each in words],
            "agreement": [layer.agreement.share for layer in found.layers],
            "chance": [layer.agreement.chance for layer in found.layers],
        }


def _off(table: Tensor, model: Transformer, layer: Layer) -> float:
    """How far the values of a layer, read as distributions over the vocabulary, are from summing to 1."""
    values = model.get_parameter(f"decoder.layers.{layer.turn}.ffn.down.weight").detach().t()
    return float(((values @ table.t()).softmax(-1).sum(-1) - 1).abs().max())


def _common(words: Tensor) -> float:
    """Of a neuron's triggers the share that end in the most frequent word among them, the mean over neurons that fired
    as often as that: ``(m, t)``, -1 where there is none."""
    words = words[(words >= 0).all(1)]
    same = (words[:, :, None] == words[:, None]).sum(-1).amax(-1)
    return float(same.double().mean() / words.shape[1])


# F3


def changed() -> dict[str, float]:
    """Learn facts, and change one after the other."""
    return edits(facts.learnt())


def edits(world: facts.World) -> dict[str, float]:
    """Of one value moved for each country, towards the capital of the next."""
    known = [said == prompt.answer for said, prompt in zip(world.answers(), facts.PROMPTS, strict=True)]
    countries = list(facts.CAPITALS)
    made = [
        facts.change(world, country, facts.CAPITALS[countries[(i + 1) % len(countries)]])
        for i, country in enumerate(countries)
    ]
    return {
        "known": sum(known) / len(known),
        "efficacy": sum(one.efficacy for one in made) / len(made),
        "paraphrase": sum(one.paraphrase for one in made) / len(made),
        "neighbourhood": sum(one.neighbourhood for one in made) / len(made),
    }


def _percent(shares: list[float]) -> str:
    return numbers([100 * share for share in shares], 1) + " %"


EXPERIMENT = Experiment(
    name="memory",
    words=WORDS,
    run=run,
    trials=(
        Trial(name="sentences", make=sentences, seconds=16.0),
        Trial(name="facts", make=changed, seconds=6.0),
    ),
)
