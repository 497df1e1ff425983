"""Schedules: the share of the learning rate at each optimizer step, as pure functions of the step's number.

Step 0 is the first update. A warm-up of w steps goes 0, 1/w, 2/w, ... and is whole at step w: the first update is made
at 0 and leaves the weights alone, so that its gradient only fills the optimizer's memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from plait.training.settings import Recipe, Schedule


def share(schedule: Schedule, step: int, steps: int | None) -> float:
    """What the learning rate is multiplied by at ``step``, from 0; ``steps`` are those of the whole run.

    At the step after the last, ``step == steps``, a schedule that falls has come to its ``final`` share. Raises
    ``ValueError`` where a schedule needs to know the end and ``steps`` is ``None``.
    """
    if step < schedule.warmup:
        return step / schedule.warmup
    return SHAPES[schedule.kind](schedule, step, steps)


def _constant(schedule: Schedule, step: int, steps: int | None) -> float:
    return 1.0


def _linear(schedule: Schedule, step: int, steps: int | None) -> float:
    return 1 - (1 - schedule.final) * _progress(step, schedule.warmup, _known(schedule, steps))


def _cosine(schedule: Schedule, step: int, steps: int | None) -> float:
    """Loshchilov and Hutter 2017, eq. 5, without restarts."""
    progress = _progress(step, schedule.warmup, _known(schedule, steps))
    return schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * progress)) / 2


def _inverse_sqrt(schedule: Schedule, step: int, steps: int | None) -> float:
    """Vaswani et al. 2017, eq. 3 ("Noam"), as a share of its peak."""
    warmup = max(1, schedule.warmup)
    return math.sqrt(warmup / max(step, warmup))


def _wsd(schedule: Schedule, step: int, steps: int | None) -> float:
    """Warm up, stay, decay (Hu et al. 2024, section 4)."""
    end = _known(schedule, steps)
    decay = max(1, round(end / 5)) if schedule.decay is None else schedule.decay
    return 1 - (1 - schedule.final) * _progress(step, max(schedule.warmup, end - decay), end)


SHAPES: dict[str, Callable[[Schedule, int, int | None], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "inverse_sqrt": _inverse_sqrt,
    "wsd": _wsd,
}


def _progress(step: int, start: int, end: int) -> float:
    """0 up to ``start``, 1 from ``end``."""
    return max(0.0, min(1.0, (step - start) / (end - start))) if end > start else float(step >= end)


def _known(schedule: Schedule, steps: int | None) -> int:
    if steps is None:
        raise ValueError(
            f"schedule.kind: {schedule.kind!r} falls towards the last step, which run.minutes does not tell; "
            "say run.steps or run.epochs too, or take 'constant' or 'inverse_sqrt'."
        )
    return steps


def steps_of(recipe: Recipe, steps_per_epoch: int) -> int | None:
    """Optimizer steps of the whole run; ``None`` where only the clock ends it."""
    if recipe.run.steps is not None:
        return recipe.run.steps
    return None if recipe.run.epochs is None else max(1, math.ceil(recipe.run.epochs * steps_per_epoch))
