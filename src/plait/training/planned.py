"""Planned: a recipe as the account of memory takes it, and the ways that its run can be spread over devices.

Nothing is read of the data, and no weight: a checkpoint's shape stands in its config. What only the data could tell is
taken at its largest, every row as long as ``data.length`` allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch

from plait.account.memory import Parameter, Spread
from plait.account.passes import Pass
from plait.account.plan import Step, spreads
from plait.architecture import Architecture, Classification
from plait.data.spans import text_length
from plait.model import Transformer
from plait.training.fitting import check_fit
from plait.training.inputs import TRAINED, found_tokenizer
from plait.training.lora import CHILD, adapted_shapes
from plait.training.optimizers import group_of
from plait.training.parallel import check_precision
from plait.training.processes import ParallelError
from plait.training.resolve import decide, usual_precision
from plait.training.running import check_spread
from plait.training.settings import Evaluate, Recipe
from plait.training.shape import architecture_of
from plait.training.tensor_parallel import check_shape, plan

Device = Literal["cuda", "cpu"]
LEARNT = {"characters": 256, "alphabet": 256, "bytes": 259}  # tokens of a vocabulary that the data decides, about
MOMENTS = {"muon": 1, "decayed": 2, "plain": 2}  # tensors that the optimizer of a group keeps for each parameter


def without_data(recipe: Recipe, device: Device = "cuda") -> Recipe:
    """The recipe decided for a device, its files unread; they need not be here."""
    if recipe.run.precision == "auto" and device == "cuda":
        recipe = replace(recipe, run=replace(recipe.run, precision=usual_precision(recipe, fast=True)))
    decided = decide(replace(recipe, data=replace(recipe.data, train=(), valid=()), evaluate=Evaluate()))
    return replace(decided, evaluate=recipe.evaluate)


def shape_of(recipe: Recipe) -> Architecture:
    """The architecture that is trained, a checkpoint's from its config."""
    from plait.checkpoint import load

    kind, data = recipe.objective.kind, recipe.data
    if recipe.model.checkpoint is None:
        if data.tokenizer in (None, "train"):
            tokens = data.vocab_size
        elif data.tokenizer in TRAINED:
            tokens = LEARNT[data.tokenizer]
        else:
            tokens = len(found_tokenizer(data.tokenizer))
        apart = kind == "paired" and not data.joint
        found = architecture_of(recipe.model, vocab_size=tokens, source_vocab_size=tokens if apart else None)
    else:
        found = load(recipe.model.checkpoint, device="meta").architecture
        check_fit(recipe, found)
    if kind not in ("classes", "values") or isinstance(found.head, Classification):
        return found
    pooled = Classification(labels=2, pooling="cls" if found.kind == "encoder" else "last")
    return found.replace(head=pooled, tied=False, logit_bias=False, logit_scale=1.0, logit_softcap=None)


def step_of(recipe: Recipe, device: Device = "cuda") -> Step:
    """What a step of a decided recipe takes."""
    a, run, data = shape_of(recipe), recipe.run, recipe.data
    rows = data.batch_rows or max(1, (data.batch_tokens or 0) // data.length)
    kind = recipe.objective.kind
    length, source = data.length, data.length if a.kind == "encoder-decoder" else None
    if kind == "spans":
        length = text_length(data.length, rate=recipe.objective.hidden, mean_span=recipe.objective.mean_span)[1]
    parameters = parameters_of(recipe, a)
    assert run.precision != "auto", "the recipe is decided"
    return Step(
        architecture=a,
        parameters=parameters,
        rows=2 * rows if kind == "contrastive" else rows,
        micro_batches=data.micro_batches,
        twice=run.activation_checkpointing,
        whole=kind == "contrastive",
        averages={"none": 0, "ema": 1, "last": run.average_last}[run.average],
        swapped={"none": 0, "ema": 1, "last": 3}[run.average],  # the weights; of snapshots their sum and mean too
        one=Pass(
            rows=1,
            length=length,
            source_length=source,
            targets=recipe.objective.hidden if kind == "masked" else 1.0,
            masked=kind != "causal" or data.packing == "documents",
            precision=run.precision,
            device=device,
            residual=run.dropout > 0,
            attention=run.attention_dropout > 0,
            activation=run.activation_dropout > 0,
            norms=not recipe.model.lora_rank,
            learns=lambda name: _learns(parameters, name),
        ),
    )


def _learns(parameters: dict[str, Parameter], name: str) -> bool:
    beside = f"{name.removesuffix('weight')}{CHILD}.down"
    return beside in parameters or (name in parameters and parameters[name].learns)


def parameters_of(recipe: Recipe, a: Architecture) -> dict[str, Parameter]:
    """Every parameter of the run, frozen ones and adapters too."""
    with torch.device("meta"):
        model = Transformer(a)
    rank, head = recipe.model.lora_rank, recipe.objective.kind in ("classes", "values")
    own = dict(model.named_parameters())
    cut = plan(a, list(own))
    found: dict[str, Parameter] = {}
    for name, value in own.items():
        learns = not rank or (head and name.startswith("head."))
        moments = MOMENTS[group_of(name, value, recipe.optimizer.kind)] if learns else 0
        found[name] = Parameter(shape=tuple(value.shape), moments=moments, cut=cut.get(name))
    for name, shape in (adapted_shapes(model, rank, recipe.model.lora_targets or None) if rank else {}).items():
        group = group_of(name, torch.empty(shape, device="meta"), recipe.optimizer.kind)
        found[name] = Parameter(shape=shape, moments=MOMENTS[group])
    return found


def spreads_of(recipe: Recipe, step: Step, devices: int) -> tuple[list[Spread], dict[str, str]]:
    """The ways that this run can be spread, and of the others why not, by their names in a recipe."""
    found: list[Spread] = []
    refused: dict[str, str] = {}
    for spread in spreads(devices):
        name = f"tensor:{spread.n}" if spread.kind == "tensor" else spread.kind
        reason = next(_reasons(recipe, step, spread, name), None)
        if reason is None:
            found.append(spread)
        else:
            refused[name] = reason
    return found, refused


def _reasons(recipe: Recipe, step: Step, spread: Spread, name: str) -> Iterator[str]:
    if spread.kind == "data":
        return
    said = replace(recipe, run=replace(recipe.run, parallel=name))
    try:
        if spread.kind == "tensor":
            check_shape(step.architecture, spread.n)
        check_precision(said.run)
        check_spread(said, spread.world)
    except ParallelError as error:
        yield str(error)
    if spread.kind == "tensor" and recipe.model.lora_rank:
        yield "model.lora_rank: adapters are not divided; train them with run.parallel = 'data' or 'fsdp'."
