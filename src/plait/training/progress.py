"""Progress: what one optimizer step was, and what the loop remembers besides tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one optimizer step was.

    Args:
        index: steps that were made, this one and those of earlier processes included; the first is 1.
        loss: nats a target, over all micro-batches and ranks, before the step.
        targets: real targets that it is over.
        lr: AdamW's learning rate.
        gradient_norm: of all gradients together, before it was clipped.
        seconds: that the step took, without evaluating and saving.
        spent: seconds of the whole run so far, with all that and with earlier processes.
        evaluation: metrics by name, where this step was followed by an evaluation; ``best``: it is the best so far.
        saved: the folder of its state, where one was written.
        stop: why this is the last step: "steps", "minutes", "patience", "SIGINT" or "SIGTERM".
    """

    index: int
    loss: float
    targets: int
    lr: float
    gradient_norm: float
    seconds: float
    spent: float = 0.0
    evaluation: Mapping[str, float] | None = None
    best: bool = False
    saved: Path | None = None
    stop: str | None = None


@dataclass
class Counts:
    """What the loop remembers from step to step besides tensors; plain numbers, kept in state.json."""

    seconds: float = 0.0  # of all steps, evaluations and savings
    first_loss: float | None = None
    best: float | None = None
    best_step: int | None = None
    worse: int = 0  # evaluations since the best
    precision: Any = None  # what the precision counts
    world: int = 1
    threads: int = 1
