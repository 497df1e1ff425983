"""Comparing: one recipe's checkpoint in the reference library and in plait, measured in every way that a law names.

What is compared in float64 is the reference with its float32 islands (norms, softmax, rotations) lifted to float64;
tables that both compute in float32 are left so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.overrides import TorchFunctionMode

import plait
from plait.architecture import Architecture
from plait.families import FAMILIES
from tests.families.making import answer, build
from tests.families.recipes import RECIPES
from tests.models import far

CASES = [(name, length) for name, recipe in RECIPES.items() for length in recipe.lengths]
NEW, PADS = 12, 3
T5_LINE = ("t5", "mt5", "umt5")
ENCODERS = {name for family in FAMILIES if family.head == "masked" for name in family.model_types}


class Exact64(TorchFunctionMode):
    """Whoever asks for float32 gets float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = {torch.float32: torch.float64}
        lift = lambda value: wide.get(value, value) if isinstance(value, torch.dtype) else value  # noqa: E731
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        if func is torch.full and isinstance(args[1], float):  # XGLM: float64's least number, in no type of its own
            kwargs = {"dtype": torch.float64, **(kwargs or {})}
        return func(*map(lift, args), **{name: lift(value) for name, value in (kwargs or {}).items()})


def inputs(architecture: Architecture, length: int, rows: int = 2) -> tuple[Tensor, dict[str, Tensor], dict[str, Any]]:
    """Tokens without padding ids, and what a model takes besides: ours, and the reference's names for it."""
    generator = torch.Generator().manual_seed(length)
    tokens = torch.randint(4, architecture.vocab_size, (rows, length), generator=generator)
    if architecture.kind == "encoder-decoder":
        source = torch.randint(4, architecture.source_vocab_size, (rows, 9), generator=generator)
        theirs = {"input_ids": source, "decoder_input_ids": tokens, "use_cache": False}  # FSMT's cache masks nothing
        return tokens, {"source": source}, theirs
    if architecture.token_types > 1:
        types = torch.randint(0, 2, (rows, length), generator=generator)
        return tokens, {"token_types": types}, {"input_ids": tokens, "token_type_ids": types}
    return tokens, {}, {"input_ids": tokens}


def lift_tables(model: Any) -> None:
    """Tables whose angles were float32 when the model was made: fairseq's sinusoids are, as ours, rounded at the end
    alone; GPT-J's rotations, as ours, not at all."""
    for module in model.modules():
        if hasattr(module, "get_embedding"):
            table = module.weights if hasattr(module, "weights") else module.weight
            with Exact64():
                exact = module.get_embedding(*table.shape, module.padding_idx)
            table.data = exact.float().to(table.dtype)
        if hasattr(module, "pos_embd_dim"):
            with Exact64():
                module.__init__(model.config)


@dataclass(frozen=True)
class Distances:
    """The largest difference of logits, as a share of the largest logit where that is above 1."""

    single: float  # float32
    double: float  # float64
    padded: float  # float64, the same rows with padding before and after them


def distances(name: str, length: int, reference: ModuleType, folder: Path) -> Distances:
    """Of a recipe, on rows of that length."""
    theirs = build(reference, RECIPES[name])
    theirs.save_pretrained(folder)
    checkpoint = plait.load(folder)
    tokens, extra, names = inputs(checkpoint.architecture, length)
    with torch.no_grad():
        single = far(checkpoint.model(tokens, **extra), answer(theirs, names))
        model, theirs = checkpoint.model.double(), theirs.double()
        lift_tables(theirs)
        theirs.set_experts_implementation("eager")  # its grouped products take no float64
        with Exact64():
            exact = answer(theirs, names)
        whole = model(tokens, **extra)
        padded = 0.0
        for wide, mask, more in both_sides(tokens, extra):
            found = model(wide, mask=mask, **more)
            padded = max(padded, far(found[mask].view_as(whole) if whole.ndim == 3 else found, exact))
    return Distances(single, far(whole, exact), padded)


def both_sides(tokens: Tensor, extra: dict[str, Tensor]) -> Iterator[tuple[Tensor, Tensor, dict[str, Tensor]]]:
    """The rows with padding before them, then after them: tokens, mask, and what goes along."""
    pads = torch.zeros_like(tokens[:, :PADS], dtype=torch.bool)
    real = torch.ones_like(tokens, dtype=torch.bool)

    def wide(x: Tensor, filler: Tensor, before: bool) -> Tensor:
        return torch.cat((filler, x) if before else (x, filler), 1)

    for before in (True, False):
        more = {k: v if k == "source" else wide(v, v[:, :PADS], before) for k, v in extra.items()}
        yield wide(tokens, tokens[:, :PADS], before), wide(real, pads, before), more


def greedy(name: str, length: int, reference: ModuleType, folder: Path) -> tuple[list[int], list[int]] | str:
    """The reference's first 12 greedy tokens and ours, or why there are none to compare."""
    recipe = RECIPES[name]
    theirs = build(reference, recipe)
    if not theirs.can_generate() or theirs.config.model_type in ENCODERS:
        return "a model without a language head says no tokens"
    original = recipe.settings.get("rope_parameters", {}).get("original_max_position_embeddings", 16)
    if "dynamic" in name and length + NEW > original or "longrope" in name and length <= original < length + NEW:
        return "the reference turns a key by the length it was read at; here a row's length is declared once"
    theirs.generation_config.eos_token_id = theirs.config.eos_token_id = None
    theirs.save_pretrained(folder)
    checkpoint = plait.load(folder)
    tokens, extra, _ = inputs(checkpoint.architecture, length, rows=1)
    prompt = extra.get("source", tokens)
    settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": NEW}
    settings["use_cache"] = theirs.config.model_type not in T5_LINE  # whose cache is as deep as the encoder
    expected = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)[0]
    result = plait.generate(checkpoint, prompt[0].tolist(), max_new_tokens=NEW, temperature=0, ignore_end=True, beams=1)
    assert isinstance(result, plait.Generation)
    return expected[-NEW:].tolist(), result.tokens


def stored(folder: Path) -> dict[str, bytes]:
    """Every tensor's bytes in a folder's one file."""
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name).view(torch.uint8).numpy().tobytes() for name in file.keys()}  # noqa: SIM118
