"""Shape: the Architecture that a recipe's [model] describes, with as many tokens as the data turns out to have."""

from __future__ import annotations

from plait.architecture import Architecture, ArchitectureError
from plait.presets import PresetError, preset
from plait.training.places import RecipeError
from plait.training.settings import Model

ANY_SIZE = 2**17  # of a vocabulary that is not known yet
HEADLESS = {"tied": False, "logit_bias": False, "head_transform": None, "head_bias": True}  # what no head has


def architecture_of(
    model: Model, *, vocab_size: int | None = None, source_vocab_size: int | None = None
) -> Architecture:
    """Preset and differences as one record; ``RecipeError`` names what is wrong in [model].

    Args:
        model: the section; it has a preset or all that an Architecture needs.
        vocab_size: ids of the tokenizer; ``None`` where that is not known yet, and the record is built to be checked.
        source_vocab_size: ids on the source's side, where it has a table of its own.
    """
    said = dict(model.overrides)
    if model.preset is not None:
        try:
            base = preset(model.preset)
        except PresetError as error:
            raise RecipeError(f"model.preset: {error}") from None
        said = {**base.to_dict(), **said}
        if said.get("position", "none") != base.position:  # organs of the old kind go with it
            said = {k: v for k, v in said.items() if k in model.overrides or k not in ("rope", "sinusoid", "alibi")}
        if "head" in model.overrides and model.overrides["head"] in (None, "none"):  # and those of a head with it
            said = HEADLESS | {k: v for k, v in said.items() if k in model.overrides or k not in HEADLESS}
    wanted = model.overrides.get("vocab_size")
    if wanted is None:
        said["vocab_size"] = vocab_size or ANY_SIZE
    elif isinstance(wanted, int) and vocab_size is not None and wanted < vocab_size:
        raise RecipeError(f"model.vocab_size: {wanted:,} rows do not hold the {vocab_size:,} tokens of the tokenizer.")
    if source_vocab_size is not None:
        said["encoder"] = {**(said.get("encoder") or {}), "vocab_size": source_vocab_size}
    try:
        return Architecture.from_dict(said)
    except ArchitectureError as error:
        raise RecipeError(f"model.{error}") from None
