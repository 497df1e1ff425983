"""Labelling: a head with an output for each label that the training data has, on a model that may have had another."""

from __future__ import annotations

from dataclasses import replace

import torch

from plait.architecture import Classification
from plait.checkpoint import Checkpoint
from plait.data.labelled import read_labelled
from plait.data.labels import class_names
from plait.data.lines import Tally
from plait.model import Transformer, initialize
from plait.training.places import RecipeError
from plait.training.settings import Recipe


def with_labels(checkpoint: Checkpoint, recipe: Recipe) -> tuple[Checkpoint, tuple[str, ...] | None]:
    """The checkpoint with a head for the labels of the training data, and their names (``None``: they are numbers).

    A head that has as many outputs, under the same names where it says names, stays; another is drawn. [model]'s
    ``head`` says how many and how they are pooled; left out, as many as there are, over the checkpoint's own pooling,
    else the first token's vector of an encoder and the last one's of a decoder.

    Raises ``RecipeError`` where [model] says another number than the data has.
    """
    samples = read_labelled(recipe.data.train, Tally(), until=recipe.data.label_until)
    names: tuple[str, ...] | None = None
    if recipe.objective.kind == "classes":
        names = class_names(samples)
        count = len(names)
        if count < 2:
            raise RecipeError(f"data.train: classes are told apart, and there is {count}.")
    else:
        first = next(iter(samples), None)
        count = len(first.label) if first is not None and isinstance(first.label, list) else 1
    a = checkpoint.architecture
    said = recipe.model.overrides.get("head")
    wanted = said.get("labels", count) if isinstance(said, dict) else count
    if wanted != count:
        raise RecipeError(f"model.head: it has {wanted} labels, and the training data {count}.")
    if isinstance(a.head, Classification) and a.head.labels == count and checkpoint.labels in (None, names):
        return checkpoint, names
    pooling = said.get("pooling") if isinstance(said, dict) else None
    if pooling is None:
        pooling = checkpoint.pooling.pooling if checkpoint.pooling else "cls" if a.kind == "encoder" else "last"
    headed = _with_head(checkpoint, Classification(labels=count, pooling=pooling), recipe.run.seed)
    if names is None:
        return headed, None
    named = {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {n: i for i, n in enumerate(names)},
    }
    config = {**(headed.layout.config or {}), **named}
    return replace(headed, layout=replace(headed.layout, config=config)), names


@torch.no_grad()
def _with_head(checkpoint: Checkpoint, head: Classification, seed: int) -> Checkpoint:
    """The body's weights under a new head."""
    changes = {"head": head, "tied": False, "logit_bias": False, "logit_scale": 1.0, "logit_softcap": None}
    architecture = checkpoint.architecture.replace(**changes)
    model = Transformer(architecture)
    initialize(model, "normal", seed=seed)
    kept = {name: value for name, value in checkpoint.model.state_dict().items() if not name.startswith("head.")}
    model.load_state_dict(kept, strict=False)
    return replace(checkpoint, architecture=architecture, model=model.eval())
