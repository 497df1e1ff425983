"""Learning: a small model trained by plait's own loop, and judged on sentences that it never saw."""

from __future__ import annotations

from dataclasses import dataclass

from plait.data.stream import Stream
from plait.model import Transformer
from plait.training.evaluation import evaluate
from plait.training.loop import train
from plait.training.loss import batch_loss
from plait.training.settings import Optimizer, Recipe, Run, Schedule
from plait.training.stepping import TrainingError


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """``losses``: of every step, in nats a target; ``broke``: whether it came to no end, for values left their range or
    the loss exploded."""

    losses: tuple[float, ...]
    broke: bool = False

    def last(self, steps: int) -> float:
        """The mean loss of the last steps; infinite where the run broke."""
        return float("inf") if self.broke else sum(self.losses[-steps:]) / len(self.losses[-steps:])


def learn(model: Transformer, stream: Stream, *, steps: int, lr: float, warmup: int = 0, seed: int = 0) -> Learnt:
    """Train in place by AdamW, the learning rate falling along a line after ``warmup`` steps.

    Raises ``KeyboardInterrupt`` where somebody asked the run to end.
    """
    recipe = Recipe(
        optimizer=Optimizer(lr=lr, beta2=0.98),
        schedule=Schedule(kind="linear", warmup=warmup),
        run=Run(steps=steps, seed=seed),
    )
    losses: list[float] = []
    try:
        for step in train(model, stream, recipe):
            losses.append(step.loss)
            if step.stop in ("SIGINT", "SIGTERM"):
                raise KeyboardInterrupt
    except TrainingError:
        return Learnt(losses=tuple(losses), broke=True)
    return Learnt(losses=tuple(losses))


def judged(model: Transformer, stream: Stream) -> float:
    """Nats a target, over all of a stream."""
    return evaluate(model, stream, batch_loss, metrics=("loss",))["loss"]
