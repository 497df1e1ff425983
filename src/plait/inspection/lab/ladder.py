"""Ladders: from GPT-2 to Llama, from the Transformer of 2017 to T5 and BERT, one knob at a time, at equal compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from plait.account import account
from plait.architecture import Architecture
from plait.data.stream import Stream
from plait.inspection.lab import corpus
from plait.inspection.lab.experiment import Experiment, Finding, Result, Trial
from plait.inspection.lab.figures import Bar, Bars, Figure, Table
from plait.inspection.lab.learning import judged, learn
from plait.inspection.lab.seeds import Spread, spread
from plait.inspection.lab.work import steps_for
from plait.model import Transformer, initialize
from plait.model.initialization import Scheme
from plait.pages.words import Words
from plait.presets import preset

WORDS = Words.of("plait.inspection.lab", "ladder")
SEEDS, STEPS, LENGTH = 3, 150, 32
SMALL: dict[str, Any] = {"d_model": 64, "n_heads": 4}
SECONDS = 9.0  # of a trial


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
    def target(self) -> Architecture:
        """The architecture at the top, made small."""
        return preset(self.top).replace(**{**self.sizes, **self.top_sizes})

    def steps(self) -> list[tuple[Rung, Architecture, Scheme]]:
        """Every rung with its architecture and how its weights are drawn."""
        architecture, scheme = preset(self.bottom).replace(**self.sizes), self.rungs[0].scheme or "gpt2"
        found: list[tuple[Rung, Architecture, Scheme]] = []
        for rung in self.rungs:
            architecture = architecture.replace(**{knob: getattr(self.target, knob) for knob in rung.knobs})
            scheme = rung.scheme or scheme
            found.append((rung, architecture, scheme))
        return found


BIASES = ("qkv_bias", "output_bias", "ffn_bias")
PAPER: dict[str, Any] = {**SMALL, "d_ff": 256, "n_encoder_layers": 2, "n_decoder_layers": 2, "embedding_scale": 8.0}
LADDERS = (
    Ladder(
        name="llama",
        bottom="gpt2",
        top="llama-2-70b",
        sizes={**SMALL, "d_ff": 256, "n_decoder_layers": 3, "max_length": LENGTH},
        top_sizes={"d_ff": 168, "n_kv_heads": 2},
        rungs=(
            Rung(name="gpt2"),
            Rung(name="llama-rope", knobs=("position",)),
            Rung(name="llama-rmsnorm", knobs=("norm",)),
            Rung(name="llama-biases", knobs=BIASES),
            Rung(name="llama-gated", knobs=("activation", "gated", "d_ff")),
            Rung(name="llama-untied", knobs=("tied",)),
            Rung(name="llama-grouped", knobs=("n_kv_heads",)),
        ),
        lr=5e-3,
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


def stream_of(architecture: Architecture, *, seed: int = 0, held_out: bool = False) -> Stream:
    """What a kind of model learns: English text, English with words hidden, English and its Chinese."""
    streams: dict[str, Callable[..., Stream]] = {
        "decoder": partial(corpus.text, LENGTH, 16),
        "encoder": partial(corpus.hidden, 96),
        "encoder-decoder": partial(corpus.pairs, 32),
    }
    return streams[architecture.kind](seed=seed, held_out=held_out)


def vocabulary(architecture: Architecture) -> int:
    """Tokens of what a kind of model learns."""
    return len(corpus.both() if architecture.kind == "encoder-decoder" else corpus.english())


def climb(ladder: Ladder, name: str, seed: int, steps: int = STEPS) -> dict[str, float]:
    """Train one rung for the compute that the bottom of the ladder takes for ``steps`` steps; an encoder alone for what
    the first of its own kind takes."""
    kinds = [(one, a.replace(vocab_size=vocabulary(a)), scheme) for one, a, scheme in ladder.steps()]
    _, architecture, scheme = next(step for step in kinds if step[0].name == name)
    first = next(a for _, a, _ in kinds if a.kind == architecture.kind)
    taken = steps_for(architecture, stream_of(architecture, seed=seed), like=first, steps=steps)
    model = Transformer(architecture)
    initialize(model, scheme, seed=seed)
    learn(model, stream_of(architecture, seed=seed), steps=taken, lr=ladder.lr, warmup=max(1, taken // 10), seed=seed)
    return {"steps": taken, "loss": judged(model, stream_of(architecture, held_out=True))}


def run(trials: Mapping[str, Any]) -> Result:
    """Each ladder's losses with their spread, beside what is counted on paper."""
    findings: list[Finding] = []
    figures: list[Figure] = []
    for ladder in LADDERS:
        losses = {
            rung.name: spread([trials[f"{rung.name}-{seed}"]["loss"] for seed in range(SEEDS)]) for rung in ladder.rungs
        }
        findings.append(whole(ladder, losses))
        figures += [bars(ladder, losses), table(ladder, losses, trials)]
    return Result(findings=tuple(findings), figures=tuple(figures))


def whole(ladder: Ladder, losses: Mapping[str, Spread]) -> Finding:
    """The top against the lowest rung that its loss can be compared with."""
    comparable = [rung.name for rung in ladder.rungs[next((i for i, r in enumerate(ladder.rungs) if r.alone), 0) :]]
    first, last = losses[comparable[0]], losses[comparable[-1]]
    helping = [WORDS[after] for before, after in pairwise(comparable) if losses[after].high < losses[before].low]
    said = WORDS.say("and_helps", steps=str(len(helping))) if helping else WORDS["none_helps"]
    return Finding(
        id="",
        what=WORDS.say("from_to", first=WORDS[comparable[0]], last=WORDS[ladder.name]),
        claimed=WORDS["improves"],
        measured=WORDS.say("was_is", first=first.said(), last=last.said(), steps=said),
        holds=last.high < first.low,
        values=(first.mean, last.mean),
    )


def bars(ladder: Ladder, losses: Mapping[str, Spread]) -> Bars:
    """Losses of the rungs that are of one kind."""
    start = next((i for i, rung in enumerate(ladder.rungs) if rung.alone), 0)
    return Bars(
        title=WORDS.say("figure", name=WORDS[ladder.name]),
        bars=tuple(
            Bar(name=WORDS[rung.name], value=loss.mean, low=loss.low, high=loss.high)
            for rung in ladder.rungs[start:]
            for loss in [losses[rung.name]]
        ),
    )


def table(ladder: Ladder, losses: Mapping[str, Spread], trials: Mapping[str, Any]) -> Table:
    """Parameters, FLOPs a token, cache bytes a token, steps and loss of each rung."""
    rows: list[Sequence[Any]] = []
    for rung, a, _ in ladder.steps():
        a = a.replace(vocab_size=vocabulary(a))
        counts = account(a)
        work = counts.flops(LENGTH).total // LENGTH
        rows.append(
            (
                WORDS[rung.name],
                f"{counts.parameters:,}",
                f"{work:,}",
                f"{counts.cache_bytes(LENGTH, dtype='fp32') // LENGTH:,}",
                f"{trials[f'{rung.name}-0']['steps']}",
                losses[rung.name].said(),
            )
        )
    heads = ("step", "parameters", "flops", "cache", "steps", "loss")
    return Table(
        title=WORDS.say("table", name=WORDS[ladder.name]),
        columns=tuple(WORDS[f"head_{head}"] for head in heads),
        rows=tuple(map(tuple, rows)),
    )


def all_trials() -> tuple[Trial, ...]:
    """Every rung once for each seed; the one that two ladders begin with is climbed once."""
    makes = {
        f"{rung.name}-{seed}": partial(climb, ladder, rung.name, seed)
        for ladder in reversed(LADDERS)
        for rung in ladder.rungs
        for seed in range(SEEDS)
    }
    return tuple(Trial(name=name, make=make, seconds=SECONDS) for name, make in makes.items())


EXPERIMENT = Experiment(name="ladder", words=WORDS, run=run, trials=all_trials())
