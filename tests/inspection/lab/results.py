"""Results of the experiments that train nothing, each run once for all tests of a process."""

from __future__ import annotations

from functools import cache

from plait.inspection.lab import Result
from plait.inspection.lab.experiments import EXPERIMENTS, experiment

FAST = tuple(one.name for one in EXPERIMENTS if not one.trials)


@cache
def result(name: str) -> Result:
    """What an experiment without trials finds."""
    return experiment(name).run({})
