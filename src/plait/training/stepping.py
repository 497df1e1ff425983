"""Stepping: one optimizer step, from micro-batches to moved weights.

    stream.step(i) -> micro-batches -> loss -> backward, each over the step's real targets -> sum over ranks
        -> unscale -> norm, clip -> optimizer -> average

Nothing in it depends on how the run came here but the weights, the optimizer's memory and the averages: the noise is
drawn from (seed, i, rank), and so are the batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from plait.data.batch import Batch
from plait.data.stream import Stream
from plait.training.breakdown import explain
from plait.training.evaluation import Loss
from plait.training.loss import batch_loss
from plait.training.progress import Step
from plait.training.ranks import Ranks
from plait.training.schedules import share
from plait.training.seeds import noise_seed
from plait.training.settings import Objective, Recipe
from plait.training.work import Work

EXPLODED = 10  # times the loss of the first step, or as many nats where that was below one


class TrainingError(ValueError):
    """A run that cannot go on; the message says at which step, why, and what stands."""


def loss_of(objective: Objective, among: Tensor | None = None) -> Loss:
    """What is made small: ``batch_loss`` with the smoothing and weights of a recipe, ``among`` these tokens."""
    return partial(
        batch_loss,
        smoothing=objective.label_smoothing,
        z_loss=objective.z_loss,
        temperature=objective.temperature,
        among=among,
    )


class Stepping:
    """Makes steps of a run that has ``steps`` in all; ``work`` is what they change."""

    def __init__(self, stream: Stream, recipe: Recipe, work: Work, loss: Loss, ranks: Ranks, steps: int | None) -> None:
        self.stream, self.recipe, self.work, self.loss, self.ranks = stream, recipe, work, loss, ranks
        self.total = steps
        self.device = next(work.model.parameters()).device

    def make(self, index: int) -> Step:
        """Make a step."""
        batches = self.stream.step(index - 1, rank=self.ranks.rank, world=self.ranks.world)
        batches = [batch.to(self.device) for batch in batches]
        own = sum((batch.real.sum().double() for batch in batches), torch.zeros((), dtype=torch.float64))
        targets = float(self.ranks.total(own.cpu()))
        self.work.optimizer.forget_gradients()
        nats = torch.zeros((), dtype=torch.float64, device=self.device)
        for total in self.passes(batches, index):
            (total * (self.work.precision.scale / max(targets, 1.0))).backward()
            nats += total.detach()  # without its graph
        loss = float(self.ranks.total(nats.cpu())) / max(targets, 1.0)
        norm = self.gather()
        finite = math.isfinite(norm)
        skipped = self.work.precision.adapt(finite)
        if not math.isfinite(loss) or not (finite or skipped):
            raise self.failure(
                index, batches, "the loss" if not math.isfinite(loss) else "the gradient's norm", loss, norm
            )
        if self.work.counts.first_loss is None:
            self.work.counts.first_loss = loss
        scaled = self.recipe.objective.kind != "values"  # whose squares have no scale of their own
        if scaled and abs(loss) > EXPLODED * max(1.0, abs(self.work.counts.first_loss)):
            raise TrainingError(
                f"step {index}: the loss exploded; it is {loss:.4g}, and was {self.work.counts.first_loss:.4g} at the "
                f"first step (gradient norm {norm:.4g})."
            )
        rate = share(self.recipe.schedule, index - 1, self.total)
        if not skipped:
            self.work.optimizer.step(rate)
            self.work.precision.spread()
        self.work.average.add(self.work.masters, index)
        lr = self.recipe.optimizer.lr * rate
        return Step(index=index, loss=loss, targets=int(targets), lr=lr, gradient_norm=norm, seconds=0.0)

    def passes(self, batches: list[Batch], index: int) -> Iterator[Tensor]:
        """The loss of each micro-batch, summed over its targets, with the noise that belongs to this step."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(noise_seed(self.recipe.run.seed, index, self.ranks.rank))
            for batch in batches:
                with self.work.precision.computing():
                    total, _ = self.loss(self.work.model, batch)
                yield total

    def gather(self) -> float:
        """Sum gradients over ranks, unscale and clip them; returns their norm before it was clipped."""
        self.ranks.reduce(dict(self.work.model.named_parameters()))
        self.work.precision.collect()
        gradients: dict[str, Tensor] = {}
        for name, parameter in self.work.optimizer.parameters.items():
            if parameter.grad is None:  # took no part in this step: the same on one process as on many
                parameter.grad = torch.zeros_like(parameter)
            gradients[name] = parameter.grad
        norm = float(self.ranks.norm(gradients)) / self.work.precision.scale
        clip = self.recipe.optimizer.clip
        factor = min(1.0, clip / (norm + 1e-6)) if clip and math.isfinite(norm) else 1.0
        factor /= self.work.precision.scale
        if factor != 1.0:
            for gradient in gradients.values():
                gradient.mul_(factor)
        return norm

    def failure(self, index: int, batches: list[Batch], what: str, loss: float, norm: float) -> TrainingError:
        """Compute the step again, and say which tensor was the first that is not finite."""
        gradients = {name: value.grad for name, value in self.work.masters.items() if value.grad is not None}
        with torch.no_grad():
            why = explain(self.work.model, self.passes(batches, index), gradients)
        value = loss if what == "the loss" else norm
        return TrainingError(f"step {index}: {what} is {value}; {why}.")
