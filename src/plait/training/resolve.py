"""Resolve: from a recipe to a model, a tokenizer and streams of batches; what is left open in it is decided here.

[model] preset, differences --> Architecture, with the tokenizer's vocabulary --> fresh weights
        from                --> Checkpoint, with another head where the objective needs one
[data]  files, format, tokenizer; [objective] --> streams
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from plait.architecture import Architecture
from plait.checkpoint import Checkpoint, DecodeRules, load
from plait.data.stream import Stream
from plait.text import Tokenizer
from plait.training.arithmetic import multiplies_bfloat16
from plait.training.fitting import check_fit, check_metrics, metrics_of
from plait.training.inputs import located, tokenizer_of
from plait.training.labelling import with_labels
from plait.training.parallel import kind_of
from plait.training.places import RecipeError
from plait.training.processes import own_device
from plait.training.quality import METRICS as TRANSLATED
from plait.training.sample_streams import said
from plait.training.settings import Precision, Recipe
from plait.training.shape import architecture_of
from plait.training.streams import Inputs, streams
from plait.training.together import FORMATS, HIDING


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A run before its first step.

    ``recipe`` has every open choice made; ``checkpoint`` the model with its weights, tokenizer and rules, in training
    precision; ``valid`` is ``None`` where nothing is held out; ``among`` has the sorted tokens that a softmax over
    targets is over, which the checkpoint's rules allow alone, and is ``None`` where it is over the vocabulary.
    """

    recipe: Recipe
    checkpoint: Checkpoint
    train: Stream
    valid: Stream | None
    among: Tensor | None = None

    @property
    def architecture(self) -> Architecture:
        """The model's."""
        return self.checkpoint.architecture


def decide(recipe: Recipe, data: Path | None = None) -> Recipe:
    """The recipe with its files located and its open choices made; nothing is read for it.

    Args:
        recipe: as ``read_recipe`` gives it.
        data: the folder that the recipe's files are in, instead of the one that PLAIT_DATA names.

    Raises ``RecipeError`` for what does not go together and for files that are not there.
    """
    check_metrics(recipe)
    kind_of(recipe.run.parallel)
    kind = recipe.objective.kind
    if recipe.model.checkpoint is None:
        check_fit(recipe, architecture_of(recipe.model))
    changed = replace(
        recipe.data,
        train=located(recipe.data.train, data),
        valid=located(recipe.data.valid, data),
        format=FORMATS.get(kind, "text"),
        longest=recipe.data.longest or ("split" if kind in ("causal", "masked", "spans", "denoising") else "drop"),
    )
    if changed.format == "text" and changed.longest != "split":
        raise RecipeError(
            f"data.longest: text is always split into rows; {changed.longest!r} is for the other formats."
        )
    if changed.format != "text" and changed.longest == "split":
        raise RecipeError(f"data.longest: {changed.format} are not split; say drop or cut.")
    precision = recipe.run.precision
    if precision == "auto":
        precision = usual_precision(recipe, multiplies_bfloat16(own_device()))
    if precision == "pure_bfloat16" and recipe.model.lora_rank:
        raise RecipeError(
            "run.precision: pure_bfloat16 would round the weights that LoRA leaves as they are; say bfloat16."
        )
    objective = replace(recipe.objective, mask_rate=recipe.objective.hidden) if kind in HIDING else recipe.objective
    run, evaluate = replace(recipe.run, precision=precision), replace(recipe.evaluate, metrics=metrics_of(recipe))
    return replace(recipe, data=changed, objective=objective, run=run, evaluate=evaluate)


def usual_precision(recipe: Recipe, fast: bool) -> Precision:
    """What "auto" is, on a machine that multiplies bfloat16 ``fast`` or does not."""
    return "float32" if not fast else "bfloat16" if recipe.model.lora_rank else "pure_bfloat16"


def resolve(recipe: Recipe, *, tokenizer: Tokenizer | None = None) -> Resolved:
    """Everything a run needs.

    Args:
        recipe: decided.
        tokenizer: that of the run which is gone on with, instead of what the recipe says.

    Raises ``RecipeError``, or the ``ValueError`` of the part that refuses, each in one sentence.
    """
    checkpoint = None
    if recipe.model.checkpoint is not None:
        checkpoint = load(recipe.model.checkpoint, dtype="float32")
        check_fit(recipe, checkpoint.architecture)
        for parameter in checkpoint.model.parameters():
            parameter.data = parameter.data.clone()  # a mapped file's are not written to
    tokenizer = tokenizer or tokenizer_of(recipe, checkpoint)
    if checkpoint is None:
        checkpoint = _fresh(recipe, tokenizer)
    elif len(tokenizer.target or tokenizer) > checkpoint.architecture.vocab_size:
        raise RecipeError(
            f"data.tokenizer: it has {len(tokenizer.target or tokenizer):,} tokens, and {recipe.model.checkpoint} rows "
            f"for {checkpoint.architecture.vocab_size:,}."
        )
    else:
        checkpoint = replace(checkpoint, tokenizer=tokenizer)
    classes = None
    if recipe.objective.kind in ("classes", "values"):
        checkpoint, classes = with_labels(checkpoint, recipe)
    train, valid = streams(Inputs(recipe, tokenizer, checkpoint.rules, classes))
    among = None
    if recipe.objective.softmax == "targets":
        among = said((train, valid))
        never = sorted({*range(checkpoint.architecture.vocab_size)}.difference(among.tolist()))
        banned = dict.fromkeys((*checkpoint.rules.banned, *((token,) for token in never)))
        # what the others' logits are was never learnt: a likelihood is one among the rest alone
        rules = replace(checkpoint.rules, banned=tuple(banned), renormalize=True)
        checkpoint = replace(checkpoint, rules=rules)
    return Resolved(recipe=recipe, checkpoint=checkpoint, train=train, valid=valid, among=among)


def _fresh(recipe: Recipe, tokenizer: Tokenizer) -> Checkpoint:
    writer, apart = tokenizer.target or tokenizer, tokenizer.target is not None
    architecture = architecture_of(
        recipe.model, vocab_size=len(writer), source_vocab_size=len(tokenizer) if apart else None
    )
    drawn = load(architecture, random=recipe.model.initialization, seed=recipe.run.seed)
    rules, evaluate = rules_of(writer, architecture), recipe.evaluate
    if {*TRANSLATED} & {*evaluate.metrics}:  # as it is judged in the run, so it will translate
        rules = replace(rules, beams=evaluate.beams, length_penalty=evaluate.length_penalty)
    return replace(drawn, tokenizer=tokenizer, rules=rules)


def rules_of(tokenizer: Tokenizer, architecture: Architecture) -> DecodeRules:
    """How a new model's texts start and end: by its tokenizer's special tokens."""
    start = None
    if architecture.kind == "encoder-decoder":
        start = tokenizer.bos if tokenizer.bos is not None else tokenizer.pad
    return DecodeRules(
        start=start,
        bos=tokenizer.bos,
        pad=tokenizer.pad,
        end=() if tokenizer.eos is None else (tokenizer.eos,),
    )
