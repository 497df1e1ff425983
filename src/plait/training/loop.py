"""Loop: optimizer steps, one after the other, as a generator; who iterates prints, draws, and may stop.

make a step -> evaluate, where that is due -> save, where that is due -> yield Step
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from torch import nn

from plait.checkpoint.notice import notice
from plait.data.stream import Stream
from plait.model.dropout import set_dropout
from plait.training.breakdown import broken
from plait.training.evaluation import Loss, better
from plait.training.fitting import metrics_of
from plait.training.plain import Precision
from plait.training.precision import precision_of
from plait.training.progress import Step
from plait.training.ranks import Alone, Ranks
from plait.training.schedules import share, steps_of
from plait.training.settings import Recipe
from plait.training.signals import Asked
from plait.training.states import folder_name, saved_states
from plait.training.stepping import Stepping, TrainingError, loss_of
from plait.training.work import Work


def train(
    model: nn.Module,
    stream: Stream,
    recipe: Recipe,
    *,
    loss: Loss | None = None,
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
        loss: of a batch, the sum over its real targets, and their number; ``None``: ``batch_loss`` by ``[objective]``.
        measure: metrics by name, called while the model holds the weights to be judged; the recipe's first metric
            decides which is best.
        out: the folder of the run; ``out/states`` gets its states. ``None``: nothing is kept.
        resume: go on from the newest whole state, if there is one.
        ranks: the processes that this is one of.
        precision: what the pass computes in; ``None``: what ``[run]`` says, to which the model is then changed.

    Raises ``TrainingError`` where values stop being finite or the loss explodes, naming the step and the tensor; the
    last state stands. ``StateError`` where a saved state does not fit, and ``OSError`` where the disk is full.
    """
    precision = precision or precision_of(recipe.run.precision, model)
    run = _Run(model, stream, recipe, loss or loss_of(recipe.objective), measure, out, ranks or Alone(), precision)
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
        self.model, self.stream, self.recipe, self.measure = model, stream, recipe, measure
        self.ranks, self.precision = ranks, precision
        self.states = None if out is None else out / "states"
        said = recipe.run
        set_dropout(model, residual=said.dropout, attention=said.attention_dropout, activation=said.activation_dropout)
        self.total = steps_of(recipe, stream.steps_per_epoch)
        share(recipe.schedule, recipe.schedule.warmup, self.total)  # refuses what has no end
        self.work = Work(model, recipe, precision, ranks.world, self.total)
        self.stepping = Stepping(stream, recipe, self.work, loss, ranks, self.total)

    # From one process to the next

    def start(self, resume: bool) -> int:
        """Steps that were made already."""
        if self.states is None:
            return 0
        state = self.ranks.newest(self.states) if resume else None
        if not resume and saved_states(self.states):
            raise TrainingError(
                f"{self.states}: a run was saved here; go on with it by resume, or choose another folder."
            )
        if state is None:
            return 0
        self.work.restore(state)
        return state.step

    def save(self, index: int) -> Path | None:
        """Put everything on the disk, where there is a folder."""
        if self.states is None:
            return None
        if name := broken(self.work.tensors):
            raise TrainingError(f"step {index}: {name} is not finite after it, and is not saved. {self.stands()}")
        best = self.work.counts.best_step if self.recipe.evaluate.patience else None
        return self.ranks.save(self.states, self.work.state(index), keep=self.recipe.run.keep, also=best)

    def stands(self) -> str:
        """What is left to go on from."""
        found = [] if self.states is None else saved_states(self.states)
        if not found:
            return "No state was saved."
        return f"{found[0]} stands: resume with a lower learning rate or more warm-up."

    # Steps

    def steps(self, done: int) -> Iterator[Step]:
        """The rest of the run."""
        self.model.train()
        with Asked() as asked:
            index, last = done, self.ending(done, asked) if done else None  # a run may have come to its end before
            while last is None:
                index += 1
                began = time.perf_counter()
                step = self.step(index)
                step = replace(step, seconds=time.perf_counter() - began)
                step = self.judge(step)
                self.work.counts.seconds += time.perf_counter() - began
                last = self.ending(index, asked)
                if last or step.best and self.recipe.evaluate.patience or index % self.recipe.run.save_every == 0:
                    began = time.perf_counter()
                    step = replace(step, saved=self.save(index))
                    self.work.counts.seconds += time.perf_counter() - began
                if last and last.startswith("SIG"):
                    where = f"saved as {step.saved}; resume goes on from there" if step.saved else "nothing is saved"
                    notice(f"{last}: stopped after step {index}, {where}.")
                yield replace(step, stop=last, spent=self.work.counts.seconds)
        self.settle(index)

    def step(self, index: int) -> Step:
        """Make a step; where that fails, say what is left."""
        try:
            return self.stepping.make(index)
        except TrainingError as error:
            raise TrainingError(f"{error} {self.stands()}") from None

    # What it is worth

    def judge(self, step: Step) -> Step:
        """With an evaluation, where one is due."""
        every = self.recipe.evaluate.every or self.stream.steps_per_epoch
        if self.measure is None or (step.index % every and step.index != self.total):
            return step
        with self.work.averaged(), self.precision.computing():
            found = dict(self.measure())
        metric = metrics_of(self.recipe)[0]
        best = better(metric, found[metric], self.work.counts.best)
        if best:
            self.work.counts.best, self.work.counts.best_step, self.work.counts.worse = found[metric], step.index, 0
        else:
            self.work.counts.worse += 1
        return replace(step, evaluation=found, best=best)

    def ending(self, index: int, asked: Asked) -> str | None:
        """Why this step is the last; all ranks agree."""
        run, patience = self.recipe.run, self.recipe.evaluate.patience
        late = run.minutes is not None and self.work.counts.seconds >= 60 * run.minutes
        mine = [asked.signal == "SIGTERM", asked.signal == "SIGINT", late]
        terminated, interrupted, late = self.ranks.anywhere(mine)
        if index == self.total:
            return "steps"
        if patience is not None and self.work.counts.worse >= patience:
            return "patience"
        return "SIGTERM" if terminated else "SIGINT" if interrupted else "minutes" if late else None

    def settle(self, index: int) -> None:
        """Leave in the model the weights that the run is for."""
        best = self.work.counts.best_step
        if self.recipe.evaluate.patience and self.states is not None and best is not None and best != index:
            self.work.settle(self.ranks.read(self.states / folder_name(best)))
        else:
            self.work.settle()
