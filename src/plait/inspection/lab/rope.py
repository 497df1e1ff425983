"""P4 and P5: rotary positions: queries and keys turn with their place, and a score sees only how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plait.architecture import Architecture, Rope, RopeScaling
from plait.inspection.lab.experiment import Experiment, Finding, Result, compared, number
from plait.inspection.lab.figures import Lines, Series
from plait.inspection.lab.making import drawn
from plait.model import watching
from plait.model.position import Rotation
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "rope")
DEGREES = RopeScaling(kind="linear", factor=6 / math.pi)  # a pair turns by a radian a position: so by 30 degrees
LENGTH, FACTOR = 64, 4.0
EXACT, ROUNDING, SEEN = 1e-10, 1e-4, 1e-3


def run(trials: Mapping[str, Any]) -> Result:
    """One pair of dimensions by hand, then the scores of a real layer for every pair of positions."""
    angles, near, far = by_hand()
    plain, slowed, absolute = scores("rope"), scores("rope", FACTOR), scores("sinusoidal")
    spread, other = uneven(plain), uneven(absolute)
    stretched = float((along(slowed)[:: int(FACTOR)] - along(plain)[: LENGTH // int(FACTOR)]).abs().max())
    findings = (
        compared("P4", WORDS["angles"], [60, 150, 300, 390], [angles[i] for i in (2, 5, 10, 13)], digits=2),
        compared("P4", WORDS["apart"], [90, 90], [angles[5] - angles[2], angles[13] - angles[10]], digits=2),
        compared("P4", WORDS["same"], [0], [abs(near - far)], digits=5),
        Finding(
            id="P5",
            what=WORDS.say("every", pairs=f"{LENGTH * LENGTH:,}"),
            claimed=WORDS["distance_alone"],
            measured=WORDS.say("off", distance=number(spread), other=number(other)),
            holds=spread < ROUNDING and other > SEEN,
            values=(spread, other),
        ),
        Finding(
            id="P5",
            what=WORDS.say("slowed", factor=number(FACTOR)),
            claimed=WORDS.say("like", factor=number(FACTOR)),
            measured=WORDS.say("within", distance=number(stretched)),
            holds=stretched < ROUNDING,
            values=(stretched,),
        ),
    )
    lines = tuple(
        Series(name=WORDS[name], points=tuple(enumerate(along(field).tolist())))
        for name, field in (("plain", plain), ("scaled", slowed))
    )
    return Result(
        findings=findings, figures=(Lines(title=WORDS["figure"], across=WORDS["far"], series=lines, log=False),)
    )


def by_hand() -> tuple[list[float], float, float]:
    """How far a query has turned at positions 0 to 13, in degrees from the first turn on, and the scores of a query and
    a key at 2 and 5, and at 10 and 13."""
    rotation = Rotation(Rope(scaling=DEGREES), d_head=2)
    positions = torch.arange(14)[None]
    table = rotation.table(positions, torch.tensor([14]), torch.float64)
    query = rotation.turn(torch.tensor([1.0, 0.0], dtype=torch.float64).expand(1, 1, 14, 2), table)[0, 0]
    key = rotation.turn(torch.tensor([0.6, 0.8], dtype=torch.float64).expand(1, 1, 14, 2), table)[0, 0]
    angles = np.unwrap(torch.atan2(query[:, 1], query[:, 0]).rad2deg().numpy(), period=360)
    return angles.tolist(), float(query[2] @ key[5]), float(query[10] @ key[13])


@torch.no_grad()
def scores(position: str, factor: float | None = None) -> Tensor:
    """``(h, q, k)`` of a real layer that reads one token ``LENGTH`` times over: only positions tell them apart."""
    scaling = None if factor is None else RopeScaling(kind="linear", factor=factor)
    knobs: dict[str, Any] = {"position": position, **({"rope": Rope(scaling=scaling)} if position == "rope" else {})}
    model = drawn(Architecture(vocab_size=4, d_model=32, n_heads=2, d_ff=32, n_encoder_layers=1, head=None, **knobs))
    site = "encoder.layers.0.attention.scores"
    with watching(model, site, stop_after=site) as seen:
        model(torch.zeros(1, LENGTH, dtype=torch.int64))
    return seen[site][0]


def uneven(field: Tensor) -> float:
    """How much the scores of pairs that are equally far apart differ, at most."""
    diagonals = [field.diagonal(k, -2, -1) for k in range(-LENGTH + 1, LENGTH)]
    return float(max((d.amax(-1) - d.amin(-1)).max() for d in diagonals))


def along(field: Tensor) -> Tensor:
    """The first head's score by distance, the key 0, 1, 2, ... places before the query."""
    return torch.stack([field[0].diagonal(-k).mean() for k in range(LENGTH)])


EXPERIMENT = Experiment(name="rope", words=WORDS, run=run)
