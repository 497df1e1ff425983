"""What trials might have found, made up, so that what is concluded from it can be tested without training."""

from __future__ import annotations

from typing import Any

from plait.inspection.lab import Result
from plait.inspection.lab.experiments import EXPERIMENTS, experiment
from tests.inspection.lab.results import result

LOSSES = [2.9, 2.9, 3.4, 4.0]  # of rows of 32, 64, 128 and 256 tokens


def found(name: str, trial: str) -> Any:
    """One trial's."""
    if name == "extrapolation":
        kind = trial.partition("-")[0]
        kept = [2.8, 2.8, 2.8, 2.8]
        losses: dict[str, Any] = {kind: kept if kind in ("alibi", "buckets") else LOSSES}
        if kind == "none":
            losses[kind] = [2.8, 2.8, 2.9, 3.0]
        if kind == "learned":
            losses[kind] = [2.9, None, None, None]
        if kind == "rope":
            losses |= {scaling: [2.9, 3.0, 3.1, 3.2] for scaling in ("dynamic", "yarn", "llama3")} | {"linear": LOSSES}
        return losses
    if name == "depth":
        placement, rate, depth, warmup = trial.split("-")
        stuck = placement == "post" and int(depth) > 12
        return {"loss": 5.1 if stuck else 4.4 if (rate, warmup) == ("bold", "0") else 4.1}
    if name == "one-tower":
        return {"loss": 1.2, "accuracy": 0.7, "losses": [7.0 - i / 100 for i in range(300)]}
    if name == "memory":
        return {
            "sentences": {
                "neurons": 512,
                "off": 1e-7,
                "surface": [0.8, 0.7, 0.7, 0.6],
                "agreement": [0.3, 0.2, 0.1, 0.05],
                "chance": [0.02] * 4,
            },
            "facts": {"known": 1.0, "efficacy": 1.0, "paraphrase": 0.9, "neighbourhood": 0.99},
        }[trial]
    return {"loss": 2.5, "steps": 150}


def trials(name: str) -> dict[str, Any]:
    """All of an experiment's."""
    return {trial.name: found(name, trial.name) for trial in experiment(name).trials}


def results() -> dict[str, Result]:
    """Of all experiments: measured where nothing is trained, else pretended."""
    return {one.name: one.run(trials(one.name)) if one.trials else result(one.name) for one in EXPERIMENTS}
