"""Running: a resolved recipe's steps, and all that a run leaves in its folder besides its states.

resolve -> adapters, precision, compilation -> loop.train -> Step, written into metrics.jsonl
        -> at evaluations samples and the report -> at the end the model as an ordinary checkpoint
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from plait.checkpoint import Checkpoint, save
from plait.checkpoint.adapter import Adapter, merge
from plait.checkpoint.peft import save_adapter
from plait.model import Transformer
from plait.training.blocks import compile_layers, recompute
from plait.training.evaluation import MEASURED, evaluate
from plait.training.fitting import metrics_of
from plait.training.folder import Folder
from plait.training.layers import activation_sizes, gradient_norms
from plait.training.loop import train
from plait.training.lora import Attached, attach
from plait.training.loss import batch_loss
from plait.training.metrics import Metrics, read_metrics
from plait.training.native import put_in
from plait.training.parallel import kind_of, wrap
from plait.training.plain import Precision
from plait.training.precision import precision_of
from plait.training.processes import ParallelError, by_first, is_first, world_size
from plait.training.progress import Step
from plait.training.quality import METRICS as TRANSLATED
from plait.training.report import report, write_report
from plait.training.resolve import Resolved
from plait.training.schedules import steps_of
from plait.training.settings import Recipe
from plait.training.stepping import loss_of
from plait.training.writing import translated, written

PICTURES = 50  # of the layers, over a run


class Running:
    """A run that is ready: iterate over ``steps``, once, and then ``finish``.

    Args:
        resolved: what is trained on what.
        folder: where; it was checked and begun.
        resume: go on from the newest state in it.
    """

    def __init__(self, resolved: Resolved, folder: Folder, *, resume: bool = False) -> None:
        self.resolved, self.folder, self.resume = resolved, folder, resume
        recipe, model = resolved.recipe, resolved.checkpoint.model
        if recipe.run.threads is not None:
            torch.set_num_threads(recipe.run.threads)
        self.attached: Attached | None = None
        if recipe.model.lora_rank:
            self.attached = attach(
                model,
                rank=recipe.model.lora_rank,
                alpha=recipe.model.lora_alpha,
                dropout=recipe.model.lora_dropout,
                targets=recipe.model.lora_targets or None,
                whole=("head.*",) if recipe.objective.kind in ("classes", "values") else (),
                seed=recipe.run.seed,
            )
        else:
            model.requires_grad_(True)
        put_in(model)
        if recipe.run.activation_checkpointing:
            recompute(model)
        if recipe.run.compile:
            compile_layers(model)
        check_spread(recipe)
        self.ranks = wrap(model, recipe.run)
        self.train = self.ranks.stream(resolved.train)
        self.valid = None if resolved.valid is None else self.ranks.stream(resolved.valid)
        self.precision: Precision = precision_of(recipe.run.precision, model)
        self.details: dict[str, str] = {}  # of the last evaluation: metrics of text as sacrebleu tells them, signed
        self.samples: list[dict[str, str]] = []  # of the last evaluation, what the model wrote
        self.total = steps_of(recipe, resolved.train.steps_per_epoch)

    def steps(self) -> Iterator[Step]:
        """The steps, each written down before it is handed out."""
        recipe, model = self.resolved.recipe, self.resolved.checkpoint.model
        learning = loss_of(recipe.objective, self.resolved.among)
        steps = train(
            model,
            self.train,
            recipe,
            loss=learning,
            measure=None if self.valid is None else self.measure,
            out=self.folder.path,
            resume=self.resume,
            ranks=self.ranks,
            precision=self.precision,
        )
        metrics: Metrics | None = None
        try:
            for step in steps:
                if not is_first():
                    yield step
                    continue
                if metrics is None:  # now it is known where the run goes on
                    after = step.index - 1 if self.resume else None
                    metrics = Metrics(self.folder.metrics, after=after, tensorboard=self.folder.path / "tensorboard")
                self.note(step, metrics)
                yield step
        finally:
            if metrics is not None:
                metrics.close()

    def measure(self) -> dict[str, float]:
        """What the recipe asks to be evaluated, and the loss in any case."""
        recipe, valid = self.resolved.recipe, self.valid
        assert valid is not None, "there is nothing to evaluate on"
        asked = list(dict.fromkeys((*metrics_of(recipe), "loss")))
        loss = functools.partial(batch_loss, temperature=recipe.objective.temperature, among=self.resolved.among)
        with self.precision.computing():
            found = evaluate(
                self.resolved.checkpoint.model,
                valid,
                loss,
                metrics=[name for name in asked if name in MEASURED],
                batches=recipe.evaluate.batches,
                ranks=self.ranks,
                among=self.resolved.among,
            )
        if written := [name for name in asked if name in TRANSLATED]:
            qualities = translated(self.resolved, written)
            self.details = {name: str(quality) for name, quality in qualities.items()}
            found |= {name: qualities[name].value if name in qualities else math.nan for name in written}
        return {name: found[name] for name in asked}

    def note(self, step: Step, metrics: Metrics) -> None:
        """Write a step down, and what belongs to it now and then."""
        values = {
            "loss": step.loss,
            "targets": step.targets,
            "lr": step.lr,
            "gradient_norm": step.gradient_norm,
            "seconds": step.seconds,
        }
        metrics.write("step", step.index, values)
        if self.pictured(step):
            metrics.write("layers", step.index, self.picture(step))
        if step.evaluation is not None:
            metrics.write("evaluation", step.index, {**step.evaluation, "best": step.best, **self.details_said()})
            if self.resolved.recipe.evaluate.samples:
                self.samples = list(written(self.resolved))
                metrics.write("samples", step.index, {"samples": self.samples})
        if step.evaluation is not None or step.stop:
            self.write_report()

    def details_said(self) -> dict[str, Any]:
        """Under one name in a line, if there are any."""
        return {"details": self.details} if self.details else {}

    def pictured(self, step: Step) -> bool:
        """Whether the layers are looked at after this step; not where one process alone cannot."""
        if self.divided:
            return False
        every = math.ceil(self.total / PICTURES) if self.total else 100
        return step.index == 1 or step.index % every == 0 or step.stop is not None

    def picture(self, step: Step) -> dict[str, Any]:
        """The layers' gradients, and their values on the first rows of this step."""
        batches = self.resolved.train.step(step.index - 1, rank=self.ranks.rank, world=self.ranks.world)
        model = self.resolved.checkpoint.model
        with self.precision.computing():
            sizes = activation_sizes(model, batches[0].to(next(model.parameters()).device)) if batches else {}
        return {
            "gradients": gradient_norms(self.precision.masters().items(), step.gradient_norm),
            "activations": dict(sizes),
        }

    def write_report(self) -> None:
        """The page as of now."""
        resolved = self.resolved
        page = report(
            read_metrics(self.folder.metrics),
            title=self.folder.path.resolve().name,
            architecture=resolved.architecture,
            recipe=self.folder.recipe.read_text(encoding="utf-8"),
            facts=resolved.train.facts(),
        )
        write_report(self.folder.report, page)

    def finish(self) -> None:
        """Save what was trained, after the last step."""
        masters = self.precision.masters()
        adapter = None if self.attached is None else self.attached.adapter(self.ranks.whole)
        checkpoint = self.resolved.checkpoint
        if self.divided:
            checkpoint = self.gathered()
        elif self.attached is not None:
            self.attached.detach()
        else:
            model = checkpoint.model.float()  # a model that computed in half precision is kept as it was learnt
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(masters[name])
        by_first(lambda: self.keep(checkpoint, adapter))

    def keep(self, checkpoint: Checkpoint, adapter: Adapter | None) -> None:
        """Write a whole checkpoint, and the adapter that it is still without."""
        if adapter is not None:
            base = self.resolved.recipe.model.checkpoint
            save_adapter(adapter, checkpoint, self.folder.adapter, overwrite=True, base=base)
            merge(checkpoint, adapter, lossy=True)
        checkpoint.model.eval()
        save(checkpoint, self.folder.model, overwrite=True)

    @property
    def divided(self) -> bool:
        """Whether no process has the whole model."""
        return world_size() > 1 and kind_of(self.resolved.recipe.run.parallel)[0] != "data"

    def gathered(self) -> Checkpoint:
        """The checkpoint with a model put together from all processes, without adapters."""
        checkpoint = self.resolved.checkpoint
        with torch.device("meta"):
            model = Transformer(checkpoint.architecture)
        own = dict(checkpoint.model.named_parameters())
        whole = {name: self.ranks.whole(name, own[name].detach()) for name, _ in model.named_parameters()}
        model.load_state_dict(whole, assign=True)
        return replace(checkpoint, model=model)


def check_spread(recipe: Recipe, world: int | None = None) -> None:
    """``ParallelError`` for what many processes, ``world`` of them or those there are, cannot do as a recipe asks."""
    kind, _ = kind_of(recipe.run.parallel)
    if (world or world_size()) == 1 or kind == "data":
        return
    if recipe.optimizer.kind == "muon":
        raise ParallelError(f"optimizer.kind: muon looks at whole matrices, and {kind} divides them; say adamw.")
    if recipe.objective.softmax == "targets":
        raise ParallelError(f"objective.softmax: {kind} divides the table whose rows it picks; say vocabulary.")
    if written := [name for name in recipe.evaluate.metrics if name in TRANSLATED]:
        raise ParallelError(f"evaluate.metrics: {written[0]} is of text that a whole model writes; {kind} divides it.")
    if recipe.evaluate.samples:
        raise ParallelError(f"evaluate.samples: a whole model writes them, and {kind} divides it; say 0.")


def ready(resolved: Resolved, folder: Folder, *, resume: bool = False) -> Running:
    """A run whose folder says what it is."""
    running = Running(resolved, folder, resume=resume)  # which may refuse
    by_first(lambda: folder.begin(resolved.recipe, resolved.checkpoint.tokenizer))
    return running
