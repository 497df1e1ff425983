"""A ladder climbed: every step trained at equal compute over seeds, beside what is counted on paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from plait.account import account
from plait.architecture import Architecture
from plait.data.stream import Stream
from plait.inspection.lab import corpus
from plait.inspection.lab.experiment import Experiment, Finding, Result, Trial
from plait.inspection.lab.figures import Bar, Bars, Figure, Table, Text
from plait.inspection.lab.ladders import LADDERS, LENGTH, Ladder
from plait.inspection.lab.learning import judged, learn
from plait.inspection.lab.seeds import Spread, spread
from plait.inspection.lab.work import steps_for
from plait.model import Transformer, initialize
from plait.model.initialization import Scheme
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "ladder")
SEEDS, STEPS = 3, 150
SECONDS = 7.5  # of a trial


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
    rungs: dict[str, tuple[Architecture, Scheme]] = {
        rung.name: (a.replace(vocab_size=vocabulary(a)), scheme) for rung, a, scheme in ladder.steps()
    }
    architecture, scheme = rungs[name]
    first = next(a for a, _ in rungs.values() if a.kind == architecture.kind)
    taken = steps_for(architecture, stream_of(architecture, seed=seed), like=first, steps=steps)
    model = Transformer(architecture)
    initialize(model, scheme, seed=seed)
    learn(model, stream_of(architecture, seed=seed), steps=taken, lr=ladder.lr, warmup=max(1, taken // 10), seed=seed)
    return {"steps": taken, "loss": judged(model, stream_of(architecture, held_out=True))}


def run(trials: Mapping[str, Any]) -> Result:
    """Each ladder's losses with their spread, beside what is counted on paper."""
    findings, figures, tables = list[Finding](), list[Figure](), list[Figure]()
    for ladder in LADDERS:
        losses = {rung.name: over_seeds(trials, rung.name) for rung in ladder.rungs}
        first, *_, last = ladder.comparable
        findings.append(better(losses, first, last))
        figures.append(bars(ladder, losses))
        tables.append(table(ladder, losses, trials))
    paper = {name: over_seeds(trials, name) for name in ("2017", "t5-pre")}
    findings.append(better(paper, "2017", "t5-pre"))
    return Result(findings=tuple(findings), figures=(*figures, *tables))


def over_seeds(trials: Mapping[str, Any], name: str) -> Spread:
    """A rung's loss."""
    return spread([trials[f"{name}-{seed}"]["loss"] for seed in range(SEEDS)])


def better(losses: Mapping[str, Spread], before: str, after: str) -> Finding:
    """Whether a rung has a lower loss than one below it, by more than the spread."""
    first, last = losses[before], losses[after]
    return Finding(
        id="",
        what=WORDS.say("from_to", first=WORDS[before], last=WORDS[after]),
        claimed=WORDS["improves"],
        measured=f"{first.said()}; {last.said()}",
        holds=last.high < first.low,
        values=(first.mean, last.mean),
    )


def bars(ladder: Ladder, losses: Mapping[str, Spread]) -> Bars:
    """Losses of the rungs that are of one kind."""
    return Bars(
        title=WORDS.say("figure", name=WORDS[ladder.name]),
        bars=tuple(
            Bar(name=WORDS[name], value=losses[name].mean, low=losses[name].low, high=losses[name].high)
            for name in ladder.comparable
        ),
    )


def table(ladder: Ladder, losses: Mapping[str, Spread], trials: Mapping[str, Any]) -> Table:
    """Parameters, FLOPs a token, cache bytes a token, steps and loss of each rung, and the loss against the rung
    below."""
    rows: list[tuple[Text, ...]] = []
    below: str | None = None
    for rung, a, _ in ladder.steps():
        counts = account(a.replace(vocab_size=vocabulary(a)))
        comparable = below in ladder.comparable
        rows.append(
            (
                WORDS[rung.name],
                f"{counts.parameters:,}",
                f"{counts.flops(LENGTH).total // LENGTH:,}",
                f"{counts.cache_bytes(LENGTH, dtype='fp32') // LENGTH:,}",
                f"{trials[f'{rung.name}-0']['steps']}",
                losses[rung.name].said(),
                against(losses[below], losses[rung.name]) if below and comparable else "",
            )
        )
        below = rung.name
    heads = ("step", "parameters", "flops", "cache", "steps", "loss", "against")
    return Table(
        title=WORDS.say("table", name=WORDS[ladder.name]),
        columns=tuple(WORDS[f"head_{head}"] for head in heads),
        rows=tuple(rows),
    )


def against(before: Spread, after: Spread) -> Text:
    """How a loss changed, where that is more than the spread."""
    return WORDS["lower" if after.high < before.low else "higher" if after.low > before.high else "alike"]


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
