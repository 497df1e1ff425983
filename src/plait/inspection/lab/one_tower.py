"""One tower or two: a decoder alone against an encoder-decoder of as many parameters, on the same translations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from plait.account import account
from plait.architecture import Architecture
from plait.data.stream import Stream
from plait.inspection.lab import corpus
from plait.inspection.lab.experiment import Experiment, Finding, Result, Trial
from plait.inspection.lab.figures import Bar, Bars, Lines, Series, Table
from plait.inspection.lab.learning import learn
from plait.inspection.lab.seeds import spread
from plait.model import Transformer, initialize
from plait.pages.words import Words
from plait.training.arithmetic import flops_per_target
from plait.training.evaluation import evaluate
from plait.training.loss import batch_loss

WORDS = Words.of("plait.inspection.lab", "one_tower")
SEEDS, STEPS, ROWS, WINDOW = 2, 300, 32, 20
TOWERS = ("one", "two")


def architecture(towers: str) -> Architecture:
    """Two towers of two layers; or one of four, its feed-forward networks as wide as makes the parameters equal."""
    two = Architecture(
        vocab_size=len(corpus.both()),
        d_model=64,
        n_heads=4,
        d_ff=256,
        n_encoder_layers=2,
        n_decoder_layers=2,
        norm="rmsnorm",
        position="rope",
        embedding_scale=8.0,
        tied=True,
    )
    if towers == "two":
        return two
    wanted = account(two).parameters
    ones = (two.replace(n_encoder_layers=0, n_decoder_layers=4, d_ff=width) for width in range(64, 1024))
    return min(ones, key=lambda one: abs(account(one).parameters - wanted))


def stream_of(towers: str, *, seed: int = 0, held_out: bool = False) -> Stream:
    """The same pairs: side by side, or one behind the other in a row, of which the second is asked."""
    make = corpus.pairs if towers == "two" else corpus.rows_of_pairs
    return make(ROWS, seed=seed, held_out=held_out)


def train_one(towers: str, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """Train, and judge on held-out pairs."""
    model = Transformer(architecture(towers))
    initialize(model, "xavier", seed=seed)
    learnt = learn(model, stream_of(towers, seed=seed), steps=steps, lr=5e-3, warmup=steps // 10, seed=seed)
    found = evaluate(model, stream_of(towers, held_out=True), batch_loss, metrics=("loss", "accuracy"))
    return {**found, "losses": list(learnt.losses)}


def run(trials: Mapping[str, Any]) -> Result:
    """Loss and accuracy of both, with what they cost."""
    seen = {towers: [trials[f"{towers}-{seed}"] for seed in range(SEEDS)] for towers in TOWERS}
    loss = {towers: spread([one["loss"] for one in found]) for towers, found in seen.items()}
    right = {towers: spread([one["accuracy"] for one in found]) for towers, found in seen.items()}
    counts = {towers: account(architecture(towers)) for towers in TOWERS}
    parameters = [counts[towers].parameters for towers in TOWERS]
    work = {towers: _work(towers) for towers in TOWERS}
    apart = abs(loss["one"].mean - loss["two"].mean)
    findings = (
        Finding(
            id="",
            what=WORDS["equal"],
            claimed=WORDS["within"],
            measured=f"{parameters[0]:,}, {parameters[1]:,}",
            holds=abs(parameters[0] - parameters[1]) < 0.01 * parameters[1],
            values=tuple(map(float, parameters)),
        ),
        Finding(
            id="",
            what=WORDS.say("loss", pairs=f"{STEPS * ROWS:,}"),
            claimed=WORDS["both_learn"],
            measured=f"{loss['one'].said()}; {loss['two'].said()}",
            holds=max(right[towers].low for towers in TOWERS) > 0.5 and apart < 0.5,
            values=(loss["one"].mean, loss["two"].mean),
        ),
        Finding(
            id="",
            what=WORDS["cost"],
            claimed=WORDS["two_cheaper"],
            measured=f"{work['one']:,.0f}; {work['two']:,.0f}",
            holds=work["two"] < work["one"],
            values=(work["one"], work["two"]),
        ),
    )
    curves = tuple(
        Series(name=WORDS[towers], points=_smooth([one["losses"] for one in seen[towers]])) for towers in TOWERS
    )
    rows = tuple(
        (
            WORDS[towers],
            f"{counts[towers].parameters:,}",
            f"{work[towers]:,.0f}",
            loss[towers].said(),
            f"{100 * right[towers].mean:.1f} %",
        )
        for towers in TOWERS
    )
    columns = tuple(WORDS[f"head_{head}"] for head in ("model", "parameters", "work", "loss", "right"))
    bars = tuple(
        Bar(name=WORDS[towers], value=loss[towers].mean, low=loss[towers].low, high=loss[towers].high)
        for towers in TOWERS
    )
    return Result(
        findings=findings,
        figures=(
            Lines(title=WORDS["curves"], across=WORDS["step"], series=curves, log=False),
            Bars(title=WORDS["figure"], bars=bars),
            Table(title=WORDS["table"], columns=columns, rows=rows),
        ),
    )


def _work(towers: str) -> float:
    """FLOPs of a training step for each target token."""
    stream = stream_of(towers)
    return flops_per_target(architecture(towers), [batch for index in range(8) for batch in stream.step(index)])


def _smooth(losses: list[list[float]]) -> tuple[tuple[float, float], ...]:
    """The mean over seeds and over stretches of some steps."""
    means = [sum(step) / len(step) for step in zip(*losses, strict=True)]
    starts = range(0, len(means) - WINDOW + 1, WINDOW)
    return tuple((float(start + WINDOW), sum(means[start : start + WINDOW]) / WINDOW) for start in starts)


EXPERIMENT = Experiment(
    name="one-tower",
    words=WORDS,
    run=run,
    trials=tuple(
        Trial(name=f"{towers}-{seed}", make=partial(train_one, towers, seed), seconds=22.0)
        for towers in TOWERS
        for seed in range(SEEDS)
    ),
)
