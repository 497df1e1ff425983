"""Loop: optimizer steps, one after the other, as a generator; who iterates prints, draws, and may stop.

    stream.step(i) -> micro-batches -> loss -> backward, each over the step's real targets -> sum over ranks
        -> unscale -> norm, clip -> optimizer -> average -> evaluate, save -> Step

Nothing of step i depends on how the run came to it but the weights, the optimizer's memory and the averages: the noise
is drawn from (seed, i, rank), and so are the batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from plait.checkpoint.notice import notice
from plait.data.batch import Batch
from plait.data.stream import Stream
from plait.model.dropout import set_dropout
from plait.training.averaging import average_of, averaged
from plait.training.breakdown import broken, explain
from plait.training.evaluation import Loss, better
from plait.training.optimizers import Optimizer
from plait.training.plain import Plain, Precision
from plait.training.progress import Counts, Step
from plait.training.ranks import Alone, Ranks
from plait.training.schedules import share, steps_of
from plait.training.seeds import noise_seed
from plait.training.settings import Recipe
from plait.training.signals import Asked
from plait.training.states import State, fill, folder_name, saved_states, tensors_of

EXPLODED = 10  # times the loss of the first step, or as many nats where that was below one


class TrainingError(ValueError):
    """A run that cannot go on; the message says at which step, why, and what stands."""


def train(
    model: nn.Module,
    stream: Stream,
    recipe: Recipe,
    *,
    loss: Loss,
    measure: Callable[[], Mapping[str, float]] | None = None,
    out: Path | None = None,
    resume: bool = False,
    ranks: Ranks | None = None,
    precision: Precision | None = None,
) -> Iterator[Step]:
    """The steps of a run, each made when it is asked for.

    SIGINT and SIGTERM end it after the step under way, which is saved. Once the iterator is exhausted the model holds
    what the run is for: with ``evaluate.patience`` the weights of the best evaluation, averaged if ``run.average`` says
    so. Leaving it earlier leaves the weights of the last step.

    Args:
        model: is trained in place; on its device. Compilation and adapters are the caller's to put in.
        stream: the data; reaches any step at once.
        recipe: of it ``[optimizer]``, ``[schedule]``, ``[run]`` and ``[evaluate]`` are read.
        loss: of a batch, the sum over its real targets, and their number.
        measure: metrics by name, called while the model holds the weights to be judged; the recipe's first metric
            decides which is best.
        out: the folder of the run; ``out/states`` gets its states. ``None``: nothing is kept.
        resume: go on from the newest whole state, if there is one.
        ranks: the processes that this is one of.
        precision: what the pass computes in; ``None``: in the type of the parameters.

    Raises ``TrainingError`` where values stop being finite or the loss explodes, naming the step and the tensor; the
    last state stands. ``StateError`` where a saved state does not fit, and ``OSError`` where the disk is full.
    """
    run = _Run(model, stream, recipe, loss, measure, out, ranks or Alone(), precision or Plain(model))
    done = run.start(resume)
    return run.steps(done)


class _Run:
    def __init__(
        self,
        model: nn.Module,
        stream: Stream,
        recipe: Recipe,
        loss: Loss,
        measure: Callable[[], Mapping[str, float]] | None,
        out: Path | None,
        ranks: Ranks,
        precision: Precision,
    ) -> None:
        self.model, self.stream, self.recipe, self.loss, self.measure = model, stream, recipe, loss, measure
        self.ranks, self.precision = ranks, precision
        self.states = None if out is None else out / "states"
        rates = recipe.run
        set_dropout(
            model,
            residual=rates.dropout,
            attention=rates.attention_dropout,
            activation=rates.activation_dropout,
        )
        self.total = steps_of(recipe, stream.steps_per_epoch)
        share(recipe.schedule, recipe.schedule.warmup, self.total)  # refuses what has no end
        self.masters = precision.masters()
        self.optimizer = Optimizer(self.masters.items(), recipe.optimizer)
        self.average = average_of(recipe.run)
        self.counts = Counts(world=ranks.world, threads=torch.get_num_threads())
        self.device = next(model.parameters()).device

    # From one process to the next

    @property
    def kept(self) -> dict[str, Tensor]:
        """Tensors that make up the model: masters where there are some."""
        return {**tensors_of(self.model), **self.masters}

    def start(self, resume: bool) -> int:
        """Steps that were made already."""
        state = None
        if self.states is not None and resume:
            state = self.ranks.newest(self.states)
        elif self.states is not None and saved_states(self.states):
            raise TrainingError(
                f"{self.states}: a run was saved here; go on with it by resume, or choose another folder."
            )
        if state is None:
            return 0
        fill(self.kept, state.model)
        self.precision.spread()
        self.optimizer.restore(state.optimizer)
        self.average.restore(state.averages)
        known = {f.name for f in fields(Counts)}
        before = Counts(**{name: value for name, value in state.counts.items() if name in known})
        for name in ("world", "threads"):
            if getattr(before, name) != getattr(self.counts, name):
                was, now = getattr(before, name), getattr(self.counts, name)
                notice(f"{name}: {was} before and {now} now; the run goes on, but rounds otherwise than it would have.")
        self.counts = replace(before, world=self.counts.world, threads=self.counts.threads)
        self.precision.restore(before.precision)
        return state.step

    def save(self, index: int) -> Path | None:
        if self.states is None:
            return None
        if name := broken(self.kept):
            raise TrainingError(f"step {index}: {name} is not finite after it, and is not saved. {self.stands()}")
        self.counts.precision = self.precision.state()
        state = State(
            step=index,
            model=self.kept,
            optimizer=self.optimizer.state(),
            averages=self.average.state(),
            counts=asdict(self.counts),
        )
        also = self.counts.best_step if self.recipe.evaluate.patience else None
        return self.ranks.save(self.states, state, keep=self.recipe.run.keep, also=also)

    def stands(self) -> str:
        """What is left to go on from."""
        found = [] if self.states is None else saved_states(self.states)
        if not found:
            return "No state was saved."
        return f"{found[0]} stands: resume with a lower learning rate or more warm-up."

    # Steps

    def steps(self, done: int) -> Iterator[Step]:
        self.model.train()
        with Asked() as asked:
            index, last = done, None
            while last is None and index != self.total:
                index += 1
                began = time.perf_counter()
                step = self.one(index)
                step = replace(step, seconds=time.perf_counter() - began)
                step = self.judge(step)
                self.counts.seconds += time.perf_counter() - began
                last = self.ending(index, asked)
                if last or step.best and self.recipe.evaluate.patience or index % self.recipe.run.save_every == 0:
                    began = time.perf_counter()
                    step = replace(step, saved=self.save(index))
                    self.counts.seconds += time.perf_counter() - began
                if last and last.startswith("SIG"):
                    where = f"saved as {step.saved}; resume goes on from there" if step.saved else "nothing is saved"
                    notice(f"{last}: stopped after step {index}, {where}.")
                yield replace(step, stop=last)
        self.settle(index)

    def one(self, index: int) -> Step:
        """Make a step."""
        batches = self.stream.step(index - 1, rank=self.ranks.rank, world=self.ranks.world)
        batches = [batch.to(self.device) for batch in batches]
        own = sum((batch.real.sum().double() for batch in batches), torch.zeros((), dtype=torch.float64))
        targets = float(self.ranks.total(own.cpu()))
        self.optimizer.forget_gradients()
        nats = torch.zeros((), dtype=torch.float64, device=self.device)
        for total in self.passes(batches, index):
            (total * (self.precision.scale / max(targets, 1.0))).backward()
            nats += total.detach()  # without its graph
        loss = float(self.ranks.total(nats.cpu())) / max(targets, 1.0)
        norm = self.gather()
        finite = math.isfinite(norm)
        skipped = self.precision.adapt(finite)
        if not math.isfinite(loss) or not (finite or skipped):
            raise self.failure(
                index, batches, "the loss" if not math.isfinite(loss) else "the gradient's norm", loss, norm
            )
        if self.counts.first_loss is None:
            self.counts.first_loss = loss
        if abs(loss) > EXPLODED * max(1.0, abs(self.counts.first_loss)):
            raise TrainingError(
                f"step {index}: the loss exploded; it is {loss:.4g}, and was {self.counts.first_loss:.4g} at the first "
                f"step (gradient norm {norm:.4g}). {self.stands()}"
            )
        rate = share(self.recipe.schedule, index - 1, self.total)
        if not skipped:
            self.optimizer.step(rate)
            self.precision.spread()
        self.average.add(self.masters, index)
        lr = self.recipe.optimizer.lr * rate
        return Step(index=index, loss=loss, targets=int(targets), lr=lr, gradient_norm=norm, seconds=0.0)

    def passes(self, batches: list[Batch], index: int) -> Iterator[Tensor]:
        """The loss of each micro-batch, summed over its targets, with the noise that belongs to this step."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(noise_seed(self.recipe.run.seed, index, self.ranks.rank))
            for batch in batches:
                with self.precision.computing():
                    total, _ = self.loss(self.model, batch)
                yield total

    def gather(self) -> float:
        """Sum gradients over ranks, unscale and clip them; returns their norm before it was clipped."""
        self.ranks.reduce(dict(self.model.named_parameters()))
        self.precision.collect()
        gradients = []
        for parameter in self.optimizer.parameters.values():
            if parameter.grad is None:  # took no part in this step: the same on one process as on many
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        norm = float(self.ranks.norm(gradients)) / self.precision.scale
        clip = self.recipe.optimizer.clip
        factor = min(1.0, clip / (norm + 1e-6)) if clip and math.isfinite(norm) else 1.0
        factor /= self.precision.scale
        if factor != 1.0:
            for gradient in gradients:
                gradient.mul_(factor)
        return norm

    def failure(self, index: int, batches: list[Batch], what: str, loss: float, norm: float) -> TrainingError:
        """Compute the step again, and say which tensor was the first that is not finite."""
        gradients = {name: value.grad for name, value in self.masters.items() if value.grad is not None}
        with torch.no_grad():
            why = explain(self.model, self.passes(batches, index), gradients)
        value = loss if what == "the loss" else norm
        return TrainingError(f"step {index}: {what} is {value}; {why}. {self.stands()}")

    # What it is worth

    def judge(self, step: Step) -> Step:
        """With an evaluation, where one is due."""
        every = self.recipe.evaluate.every or self.stream.steps_per_epoch
        if self.measure is None or (step.index % every and step.index != self.total):
            return step
        with self.holding_average():
            found = dict(self.measure())
        metric = self.recipe.evaluate.metrics[0]
        best = better(metric, found[metric], self.counts.best)
        if best:
            self.counts.best, self.counts.best_step, self.counts.worse = found[metric], step.index, 0
        else:
            self.counts.worse += 1
        return replace(step, evaluation=found, best=best)

    @contextmanager
    def holding_average(self) -> Iterator[None]:
        """The model has the average's weights, if there are any, inside the block."""
        try:
            with averaged(self.masters, self.average):
                self.precision.spread()
                yield
        finally:
            self.precision.spread()

    def ending(self, index: int, asked: Asked) -> str | None:
        """Why this step is the last; all ranks agree."""
        run, patience = self.recipe.run, self.recipe.evaluate.patience
        late = run.minutes is not None and self.counts.seconds >= 60 * run.minutes
        mine = [asked.signal == "SIGTERM", asked.signal == "SIGINT", late]
        terminated, interrupted, late = self.ranks.total(torch.tensor(mine, dtype=torch.float64)).tolist()
        if index == self.total:
            return "steps"
        if patience is not None and self.counts.worse >= patience:
            return "patience"
        return "SIGTERM" if terminated else "SIGINT" if interrupted else "minutes" if late else None

    def settle(self, index: int) -> None:
        """Leave in the model the weights that the run is for."""
        best, average = self.counts.best_step, self.average
        if self.recipe.evaluate.patience and self.states is not None and best not in (None, index):
            state = self.ranks.read(self.states / folder_name(best))
            fill(self.kept, state.model)
            average = average_of(self.recipe.run)
            average.restore(state.averages)
        with torch.no_grad():
            for name, value in average.mean().items():
                self.masters[name].copy_(value)
        self.precision.spread()
