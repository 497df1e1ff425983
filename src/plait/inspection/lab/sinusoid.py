"""P2 and P3: the sinusoids of 2017, their table, what a step along them is, and how long their waves are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Sinusoid
from plait.inspection.lab.experiment import Experiment, Finding, Result, compared, number
from plait.inspection.lab.figures import Lines, Matrix, Series
from plait.model.position import sinusoids
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "sinusoid")
TABLE = {
    1: (0.8415, 0.5403, 0.0100, 1.0000),
    2: (0.9093, -0.4161, 0.0200, 0.9998),
    3: (0.1411, -0.9900, 0.0300, 0.9996),
}
WIDTH, POSITIONS, STEPS = 512, 2048, (1, 2, 5, 17, 100, 1000)
ROUNDING = 1e-5  # of a table in float32, turned once


def run(trials: Mapping[str, Any]) -> Result:
    """The table that the model adds to embeddings."""
    small = table(torch.arange(4), 4)
    findings = [
        compared("P2", WORDS.say("row", position=position), claimed, small[position].tolist(), digits=4)
        for position, claimed in TABLE.items()
    ]
    off = max(turned(step) for step in STEPS)
    findings.append(
        Finding(
            id="P3",
            what=WORDS.say("step", steps=", ".join(map(str, STEPS)), positions=f"{POSITIONS:,}"),
            claimed=WORDS["rotation"],
            measured=WORDS.say("off", distance=number(off)),
            holds=off < ROUNDING,
            values=(off,),
        )
    )
    waves = periods(WIDTH)
    claimed = (2 * math.pi * 10000.0 ** ((WIDTH - 2) / WIDTH), 2 * math.pi)
    findings.append(
        Finding(
            id="W1",
            what=WORDS["circulates"],
            claimed=WORDS.say("waves", first="62,832", last=number(claimed[1], 2)),
            measured=WORDS.say("waves", first=number(waves[0], 2), last=number(round(waves[-1]))),
            holds=waves[0] > waves[-1],
            values=(waves[0], waves[-1]),
        )
    )
    shown = table(torch.arange(16), 16)
    pictures = (
        Lines(
            title=WORDS["figure"],
            across=WORDS["pair"],
            series=(Series(name=WORDS["period"], points=tuple(enumerate(waves))),),
            log=True,
        ),
        Matrix(
            title=WORDS["field"],
            rows=tuple(map(str, range(16))),
            columns=tuple(map(str, range(16))),
            values=tuple(map(tuple, shown.tolist())),
        ),
    )
    return Result(findings=tuple(findings), figures=pictures)


def table(positions: Tensor, width: int) -> Tensor:
    """What the embedding adds, ``(n, width)``."""
    return sinusoids(positions, width, Sinusoid())


def turned(step: int) -> float:
    """How far PE(pos + step) is from PE(pos) with each pair turned by one angle, the same at every position: its cosine
    and sine are PE(step)'s own."""
    codes = table(torch.arange(POSITIONS + step), WIDTH).double()
    sine, cosine = codes[:-step, 0::2], codes[:-step, 1::2]
    by_sine, by_cosine = codes[step, 0::2], codes[step, 1::2]
    there = torch.stack((sine * by_cosine + cosine * by_sine, cosine * by_cosine - sine * by_sine), -1).flatten(-2)
    return float((there - codes[step:]).abs().max())


def periods(width: int) -> list[float]:
    """Positions until each pair comes round, from how far one position turns it."""
    codes = table(torch.tensor([1]), width)[0].double()
    return (2 * math.pi / torch.atan2(codes[0::2], codes[1::2])).tolist()


EXPERIMENT = Experiment(name="sinusoid", words=WORDS, run=run)
