"""Fitting: what an objective and its data need of an architecture, refused before anything long is run."""

from __future__ import annotations

from dataclasses import fields

from plait.architecture import Architecture, Classification
from plait.training.places import RecipeError
from plait.training.settings import Recipe

DECODER, ENCODER, BOTH = "decoder", "encoder", "encoder-decoder"

NEEDS: dict[str, tuple[str, ...]] = {  # objective -> the kinds that can be asked it
    "causal": (DECODER,),
    "chat": (DECODER,),
    "masked": (ENCODER,),
    "spans": (BOTH,),
    "denoising": (BOTH,),
    "paired": (BOTH,),
    "classes": (ENCODER, DECODER),
    "values": (ENCODER, DECODER),
    "contrastive": (ENCODER, DECODER),
}
HEADS: dict[str, str] = {"masked": "masked", "causal": "language", "chat": "language"} | dict.fromkeys(
    ("spans", "denoising", "paired"), "language"
)
METRICS: dict[str, tuple[str, ...]] = {  # metric -> the objectives whose answers it measures; none: all
    "loss": (),
    "perplexity": ("causal", "chat", "masked", "spans", "denoising", "paired"),
    "bits_per_byte": ("causal",),
    "accuracy": ("causal", "chat", "masked", "spans", "denoising", "paired", "classes"),
    "bleu": ("paired",),
    "chrf": ("paired",),
}

SEARCHING = {  # settings of how texts are written and measured -> what asks for it
    "tokenize": ("bleu",),
    "beams": ("bleu", "chrf", "samples"),
    "length_penalty": ("bleu", "chrf", "samples"),
}


def check_fit(recipe: Recipe, architecture: Architecture) -> None:
    """``RecipeError`` where the model cannot be asked what the objective asks, or has no positions for its rows."""
    kind = recipe.objective.kind
    if architecture.kind not in NEEDS[kind]:
        chats = "; of a decoder alone make chats of the pairs: objective.kind chat" if kind == "paired" else ""
        raise RecipeError(
            f"objective.kind: {kind!r} trains a model of kind {' or '.join(NEEDS[kind])}, and [model] is of kind "
            f"{architecture.kind} ({architecture.n_encoder_layers} encoder and {architecture.n_decoder_layers} decoder "
            f"layers){chats if architecture.kind == DECODER else ''}."
        )
    head = HEADS.get(kind)
    if head is not None and architecture.head != head:
        raise RecipeError(f"model.head: the objective {kind!r} needs {head!r}, and it is {_head(architecture)}.")
    if kind == "contrastive" and architecture.head is not None:
        raise RecipeError(f"model.head: the objective {kind!r} needs 'none', and it is {_head(architecture)}.")
    longest = architecture.max_length
    if longest is not None and recipe.data.length > longest:
        raise RecipeError(
            f"data.length: rows of {recipe.data.length:,} tokens, and the model has positions for {longest:,}; shorten "
            "them or set model.max_length."
        )


def metrics_of(recipe: Recipe) -> tuple[str, ...]:
    """Those that are asked for; where none is, those that every model of the objective is measured by."""
    answered = "perplexity" if recipe.objective.kind in METRICS["perplexity"] else "accuracy"
    usual = ("loss", answered) if recipe.objective.kind in METRICS[answered] else ("loss",)
    return recipe.evaluate.metrics or usual


def check_metrics(recipe: Recipe) -> None:
    """``RecipeError`` for metrics that are unknown or do not measure this objective, and for evaluation on nothing."""
    kind, data, evaluate = recipe.objective.kind, recipe.data, recipe.evaluate
    for name in evaluate.metrics:
        if name not in METRICS:
            raise RecipeError(f"evaluate.metrics: {name!r} is not one of {', '.join(METRICS)}.")
        if METRICS[name] and kind not in METRICS[name]:
            fit = [metric for metric, kinds in METRICS.items() if not kinds or kind in kinds]
            raise RecipeError(
                f"evaluate.metrics: {name} does not measure {kind!r}; that is measured by {', '.join(fit)}."
            )
        if name == "bits_per_byte" and data.valid_fraction:
            raise RecipeError("evaluate.metrics: bits_per_byte needs whole files; say data.valid, not valid_fraction.")
    for setting in fields(evaluate):
        name = setting.name
        if name == "metrics" or getattr(evaluate, name) == setting.default:
            continue
        if not data.valid and not data.valid_fraction:
            raise RecipeError(f"evaluate.{name}: there is nothing to evaluate on; say data.valid or valid_fraction.")
        if name in SEARCHING and not {*SEARCHING[name]} & {
            *evaluate.metrics,
            *(["samples"] if evaluate.samples else []),
        }:
            raise RecipeError(f"evaluate.{name}: it counts for {' and '.join(SEARCHING[name])}, and none is asked for.")


def _head(architecture: Architecture) -> str:
    if isinstance(architecture.head, Classification):
        return f"of {architecture.head.labels} labels"
    return repr(architecture.head)
