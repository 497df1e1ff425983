"""Experiments: all that there are, in the order in which a reader meets them."""

from __future__ import annotations

from plait.inspection.lab import (
    cross,
    depth,
    extrapolation,
    identity,
    ladder,
    learned,
    memory,
    norm,
    one_tower,
    permutation,
    residual,
    rope,
    share,
    sinusoid,
    towers,
    tying,
)
from plait.inspection.lab.experiment import Experiment
from plait.words import nearest

EXPERIMENTS: tuple[Experiment, ...] = (
    norm.EXPERIMENT,
    permutation.EXPERIMENT,
    sinusoid.EXPERIMENT,
    rope.EXPERIMENT,
    learned.EXPERIMENT,
    extrapolation.EXPERIMENT,
    residual.EXPERIMENT,
    depth.EXPERIMENT,
    identity.EXPERIMENT,
    towers.EXPERIMENT,
    cross.EXPERIMENT,
    one_tower.EXPERIMENT,
    tying.EXPERIMENT,
    share.EXPERIMENT,
    memory.EXPERIMENT,
    ladder.EXPERIMENT,
)


def experiment(name: str) -> Experiment:
    """One of them. Raises ``ValueError`` for a name that none has, with the nearest."""
    for one in EXPERIMENTS:
        if one.name == name:
            return one
    names = [one.name for one in EXPERIMENTS]
    near = nearest(name, names)
    hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names)}."
    raise ValueError(f"{name!r}: there is no such experiment; {hint}")
