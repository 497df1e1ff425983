"""Settings together: which of them count beside which, which exclude each other, and which must be said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from plait.training.places import RecipeError, get, keys
from plait.training.schedules import share
from plait.training.settings import Recipe
from plait.training.shape import architecture_of

HIDING = ("masked", "spans", "denoising")  # objectives that hide some of a text
CHOOSING = ("causal", *HIDING, "paired", "chat", "classes")  # those that are answered by one of many

# setting -> (the setting that decides, the values under which it counts)
COUNTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "model.initialization": ("model.from", (None,)),
    "data.packing": ("objective.kind", ("causal", *HIDING)),
    "data.joint": ("objective.kind", ("paired",)),
    "data.lowercase": ("objective.kind", ("causal", *HIDING, "paired", "contrastive", "classes", "values")),
    "data.label_until": ("objective.kind", ("classes", "values")),
    "objective.label_smoothing": ("objective.kind", CHOOSING),
    "objective.z_loss": ("objective.kind", CHOOSING),
    "objective.softmax": ("objective.kind", ("paired",)),
    "objective.subword_dropout": ("objective.kind", ("paired",)),
    "objective.mask_rate": ("objective.kind", HIDING),
    "objective.mean_span": ("objective.kind", ("spans", "denoising")),
    "objective.permute": ("objective.kind", ("denoising",)),
    "objective.whole_words": ("objective.kind", ("masked",)),
    "objective.temperature": ("objective.kind", ("contrastive",)),
    "optimizer.matrix_lr": ("optimizer.kind", ("muon",)),
    "optimizer.momentum": ("optimizer.kind", ("muon",)),
    "optimizer.matrix_weight_decay": ("optimizer.kind", ("muon",)),
    "schedule.decay": ("schedule.kind", ("wsd",)),
    "schedule.final": ("schedule.kind", ("linear", "cosine", "wsd")),
    "evaluate.samples": ("objective.kind", ("causal", "paired")),
    "evaluate.tokenize": ("objective.kind", ("paired",)),
    "evaluate.beams": ("objective.kind", ("paired",)),
    "evaluate.length_penalty": ("objective.kind", ("paired",)),
    "run.ema_decay": ("run.average", ("ema",)),
    "run.average_last": ("run.average", ("last",)),
    "run.average_every": ("run.average", ("last",)),
}

LORA = ("model.lora_alpha", "model.lora_dropout", "model.lora_targets")  # count where model.lora_rank is above 0

OF_LEARNT = ("data.tokenizer_kind", "data.vocab_size")  # count for a tokenizer that is trained


def idle(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """Settings that nothing reads: (place, the setting that decides, under which values it would count)."""
    for place, (decides, values) in COUNTS.items():
        if get(recipe, decides) not in values:
            yield place, decides, " or ".join("none" if value is None else str(value) for value in values)
    if (recipe.data.tokenizer or "train") != "train":
        yield from ((place, "data.tokenizer", "train") for place in OF_LEARNT)
    elif recipe.data.tokenizer is None and recipe.model.checkpoint is not None:
        yield from ((place, "model.from", "none") for place in OF_LEARNT)
    if not recipe.model.lora_rank:
        yield from ((place, "model.lora_rank", "1 or more") for place in LORA)


EXCLUSIVE = (  # at most one of these is said
    ("model.preset", "model.from"),
    ("data.valid", "data.valid_fraction"),
    ("data.batch_rows", "data.batch_tokens"),
    ("run.steps", "run.epochs"),
)
NEEDED = (  # at least one of these is said
    ("data.train",),
    ("data.batch_rows", "data.batch_tokens"),
    ("run.steps", "run.epochs", "run.minutes"),
)
TRAINED = ("characters", "alphabet", "bytes", "train")  # tokenizers by what is made of the data, instead of found
FORMATS = {  # objective -> the format its data has
    "paired": "pairs",
    "chat": "chat",
    "classes": "labelled",
    "values": "labelled",
    "contrastive": "pairs",
}


def refuse_idle(recipe: Recipe, said: Mapping[str, Mapping[str, Any]]) -> None:
    """``RecipeError`` for a setting among ``said``, what a person wrote, that nothing reads in this recipe."""
    for place, decides, values in idle(recipe):
        section, key = place.split(".")
        if key in said.get(section, {}):
            raise RecipeError(f"{place}: it counts where {decides} is {values}, and that is {_word(recipe, decides)}.")


def without_idle(recipe: Recipe) -> Recipe:
    """What nothing reads is at its default: two ways to say one run are equal."""
    for place, *_ in idle(recipe):
        section, key = place.split(".")
        field = keys(section)[key]
        recipe = replace(recipe, **{section: replace(getattr(recipe, section), **{field.name: field.default})})
    return recipe


def check(recipe: Recipe) -> Recipe:
    """The recipe, if its settings go together."""
    for places in EXCLUSIVE:
        if len(both := [place for place in places if get(recipe, place)]) > 1:
            raise RecipeError(f"{both[1]}: {both[0]} says the same otherwise; keep one.")
    for places in NEEDED:
        if not any(get(recipe, place) for place in places):
            raise RecipeError(f"{places[0]}: say it" + (f", or {_either(places[1:])}." if places[1:] else "."))
    model, kind, tokenizer = recipe.model, recipe.objective.kind, recipe.data.tokenizer
    if not recipe.data.joint and (model.checkpoint is not None or tokenizer not in (None, *TRAINED)):
        raise RecipeError("data.joint: false is for tokenizers that are trained; one that is there is as it is.")
    if recipe.data.packing == "windows" and kind != "causal":
        raise RecipeError(f"data.packing: windows are of causal text; for {kind} say documents or stream.")
    if model.lora_rank and recipe.optimizer.kind == "muon":
        raise RecipeError("optimizer.kind: muon is for whole hidden matrices, and LoRA trains none; say adamw.")
    if recipe.run.steps is None and recipe.run.epochs is None:
        try:
            share(recipe.schedule, recipe.schedule.warmup, None)
        except ValueError as error:  # it falls towards an end that nobody knows
            raise RecipeError(str(error)) from None
    if model.lora_rank and model.checkpoint is None:
        raise RecipeError("model.lora_rank: LoRA adapts weights that were learnt; say whose with model.from.")
    if model.checkpoint is not None and (changed := [key for key in model.overrides if key != "head"]):
        raise RecipeError(f"model.{changed[0]}: the checkpoint's weights have a shape already; only head may differ.")
    if model.checkpoint is None:
        architecture_of(model)
    if recipe.data.format not in ("auto", FORMATS.get(kind, "text")):
        raise RecipeError(
            f"data.format: the objective {kind!r} is trained on {FORMATS.get(kind, 'text')}, "
            f"and not on {recipe.data.format}."
        )
    return recipe


def _word(recipe: Recipe, place: str) -> str:
    value = get(recipe, place)
    return "none" if value is None else str(value)


def _either(places: Iterable[str]) -> str:
    return " or ".join(places)
