"""Judging: a finished model on files, by the metrics that fit what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from plait.architecture import Architecture, Classification
from plait.checkpoint import Checkpoint
from plait.checkpoint.notice import notice
from plait.data.lines import Tally
from plait.data.paired import Paired
from plait.data.pairs import read_pairs
from plait.data.samples import Samples
from plait.data.stream import Stream
from plait.training.evaluation import MEASURED, evaluate
from plait.training.fitting import METRICS, check_fit, check_metrics
from plait.training.inputs import located
from plait.training.loss import batch_loss
from plait.training.places import RecipeError
from plait.training.quality import METRICS as TRANSLATED
from plait.training.quality import Quality, check_installed, translation_quality
from plait.training.settings import Data, Evaluate, Objective, Recipe
from plait.training.stream_inputs import Inputs
from plait.training.streams import streams
from plait.training.together import FORMATS

NOT_WHOLE = ("blank", "over_long", "cut", "bad")  # counts of what was left out, or shortened


def judge(
    checkpoint: Checkpoint,
    files: Sequence[str],
    *,
    objective: Any = None,
    metrics: Sequence[str] | None = None,
    length: int | None = None,
    batch_rows: int = 16,
    lowercase: bool = False,
    label_until: str | None = None,
    **translating: Any,
) -> tuple[dict[str, float], dict[str, Quality]]:
    """Metrics by name, over all of the files; and of those that compare translations, by name, how they were counted.

    Args:
        checkpoint: with its tokenizer; its mode is restored.
        files: as a recipe's ``data.train``.
        objective: of a recipe; ``None``: by what the model is.
        metrics: ``None``: all that measure the objective.
        length: tokens a row; ``None``: 512, or the longest that the model takes.
        batch_rows: rows of a batch.
        lowercase, label_until: as in a recipe's [data].
        translating: of ``translation_quality``, for BLEU and chrF: ``tokenize``, ``beams``, ...

    Raises ``RecipeError`` where these do not go together.
    """
    if checkpoint.tokenizer is None:
        raise RecipeError("tokenizer: the checkpoint has none to read the data with.")
    for name, number in (("length", length), ("batch_rows", batch_rows)):
        if number is not None and number < 1:
            raise RecipeError(f"{name}: {number} makes no sense; give a whole number from 1.")
    if unknown := [name for name in metrics or () if name not in METRICS]:
        raise RecipeError(f"metrics: {unknown[0]!r} is not one of {', '.join(METRICS)}.")
    a = checkpoint.architecture
    kind: Any = objective or objective_of(a)
    if metrics is None:
        metrics = [name for name in METRICS if not METRICS[name] or kind in METRICS[name]]
    data = Data(
        train=_found(files),
        valid=("as train",),
        format=cast(Any, FORMATS.get(kind, "text")),
        length=length or min(512, a.max_length or 512),
        batch_rows=batch_rows,
        longest="cut" if FORMATS.get(kind) else "split",
        lowercase=lowercase,
        label_until=label_until,
    )
    recipe = Recipe(data=data, objective=Objective(kind=kind), evaluate=Evaluate(metrics=tuple(metrics)))
    check_fit(recipe, a)
    check_metrics(recipe)
    classes = checkpoint.labels if kind == "classes" else None
    if kind == "classes" and classes is None:
        raise RecipeError("labels: the checkpoint does not say what its classes are called.")
    if asked := [name for name in metrics if name in TRANSLATED]:
        check_installed()
    elif translating:
        raise RecipeError(f"{next(iter(translating))}: it counts for bleu and chrf, and neither is measured here.")
    if label_until is not None and FORMATS.get(kind) != "labelled":
        raise RecipeError(f"label_until: it counts for labelled sentences, and {kind} has none.")
    recipe = replace(recipe, data=replace(data, valid=()))
    stream, _ = streams(Inputs(recipe, checkpoint.tokenizer, checkpoint.rules, classes))
    facts = stream.facts()
    if left := [f"{name.replace('_', ' ')} {facts[name]:,}" for name in NOT_WHOLE if facts.get(name)]:
        notice(f"data: not all of it is measured as it stands: {', '.join(left)}.")
    among = _among(checkpoint, stream)
    measured = [name for name in metrics if name in MEASURED]
    found = evaluate(checkpoint.model, stream, partial(batch_loss, among=among), metrics=measured, among=among)
    qualities: dict[str, Quality] = {}
    if asked:
        pairs = list(read_pairs(recipe.data.train, Tally(), lowercase=lowercase))
        sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
        qualities, _ = translation_quality(checkpoint, sources, references, metrics=asked, **translating)
        found |= {name: quality.value for name, quality in qualities.items()}
    return {name: found[name] for name in metrics}, qualities


def _found(files: Sequence[str]) -> tuple[str, ...]:
    try:
        return located(files, None)
    except RecipeError as error:  # whose advice is about recipes
        raise RecipeError(f"{str(error).partition(';')[0]}.") from None


def _among(checkpoint: Checkpoint, stream: Stream) -> Tensor | None:
    """Of pairs the tokens that the checkpoint may write, where its rules ban some, and those that it is asked for."""
    banned = {sequence[0] for sequence in checkpoint.rules.banned if len(sequence) == 1}
    if not banned or not (isinstance(stream, Samples) and isinstance(stream.objective, Paired)):
        return None
    asked = {int(token) for token in stream.objective.said()}
    if strange := asked & banned:
        notice(f"{len(strange)} of the tokens in these targets are banned by the checkpoint's rules: it writes none.")
    return torch.tensor(sorted({*range(checkpoint.architecture.vocab_size)} - banned | asked))


def objective_of(a: Architecture) -> str:
    """What a model is asked by what it is; ``RecipeError`` where that cannot be told."""
    if isinstance(a.head, Classification):
        return "classes"
    found = {
        ("decoder", "language"): "causal",
        ("encoder", "masked"): "masked",
        ("encoder-decoder", "language"): "paired",
    }
    if (a.kind, a.head) not in found:
        raise RecipeError(f"objective: an {a.kind} without a head answers nothing that could be right or wrong.")
    return found[a.kind, str(a.head)]
