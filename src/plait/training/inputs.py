"""Inputs: a recipe's files where they are, and the tokenizer that cuts them: found, trained on them, or characters."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from plait.checkpoint import Checkpoint
from plait.checkpoint.package import PREFIX
from plait.data.documents import Documents
from plait.data.labelled import read_labelled
from plait.data.lines import Tally
from plait.data.pairs import read_pairs
from plait.data.sources import HUB, find
from plait.text import Tokenizer, load_tokenizer, train_tokenizer, with_target
from plait.text.training import KINDS
from plait.training.places import RecipeError
from plait.training.settings import Recipe
from plait.training.together import TRAINED
from plait.words import nearest

FOLDER = "PLAIT_DATA"  # the variable that names where recipes' data is


def located(paths: Iterable[str], data: Path | None) -> tuple[str, ...]:
    """The paths as they are from anywhere: below ``data``, else below the folder that PLAIT_DATA names, else here.

    Raises ``RecipeError`` for one that is in none of them.
    """
    named = os.environ.get(FOLDER)
    folders = [data, *([Path(named).expanduser()] if named else []), Path()] if data is None else [data]
    found = []
    for path in paths:
        if path.startswith(HUB):
            found.append(path)
            continue
        places = [folder / Path(path).expanduser() for folder in folders if folder is not None]
        there = next((place for place in places if place.exists()), None)
        if there is None:
            raise RecipeError(
                f"data: there is no {' and no '.join(dict.fromkeys(map(str, places)))}; say where the data is with "
                f"--data FOLDER or {FOLDER}, or name files with --data.train."
            )
        found.append(str(there.resolve()))
    return tuple(found)


def tokenizer_of(recipe: Recipe, checkpoint: Checkpoint | None) -> Tokenizer:
    """The tokenizer that the recipe says, or that its checkpoint has, or one learnt from the training data.

    Raises ``RecipeError`` where nothing of the name is there, and for special tokens that the objective needs and the
    tokenizer lacks.
    """
    said = recipe.data.tokenizer
    if said is None and checkpoint is not None:
        if checkpoint.tokenizer is None:
            raise RecipeError(f"data.tokenizer: {recipe.model.checkpoint} has none; name one.")
        return checkpoint.tokenizer
    if said is None or said in TRAINED:
        what = said or "train"
        if recipe.data.joint:
            return _trained(recipe, what, texts(recipe))
        source, target = (_trained(recipe, what, texts(recipe, side)) for side in (0, 1))
        return with_target(source, target)
    return found_tokenizer(said)


def found_tokenizer(said: str) -> Tokenizer:
    """The tokenizer of a folder, which may hold nothing else, or of a checkpoint."""
    folder = Path(said).expanduser()
    if folder.is_dir() and (found := load_tokenizer(folder)) is not None:
        return found
    if not folder.exists() and not said.startswith(PREFIX) and "/" not in said:
        near = nearest(said, TRAINED)
        hint = f"did you mean {near!r}?" if near else f"give a folder, package:NAME, or one of {', '.join(TRAINED)}."
        raise RecipeError(f"data.tokenizer: {said}: there is no such folder; {hint}")
    from plait.checkpoint import load

    other = load(said, device="meta").tokenizer
    if other is None:
        raise RecipeError(f"data.tokenizer: {said} has no tokenizer.")
    return other


def _trained(recipe: Recipe, what: str, texts: Iterable[str]) -> Tokenizer:
    data, kind = recipe.data, recipe.objective.kind
    if data.tokenizer_kind not in KINDS:
        near = nearest(data.tokenizer_kind, KINDS)
        raise RecipeError(
            f"data.tokenizer_kind: {data.tokenizer_kind!r} is not one of {', '.join(KINDS)}"
            + (f"; did you mean {near!r}?" if near else ".")
        )
    algorithm = data.tokenizer_kind if what == "train" else what
    specials: dict[str, str] = {}
    if kind in ("masked", "denoising") and "mask" not in KINDS[algorithm].names:
        specials["mask"] = "<mask>"
    if kind == "spans":
        raise RecipeError("data.tokenizer: spans need a vocabulary with sentinels (T5's); name one.")
    if kind == "chat":
        raise RecipeError(
            "data.tokenizer: chats need a tokenizer with a chat template; name one, or go on from a model."
        )
    return train_tokenizer(
        texts,
        kind=algorithm,
        vocab_size=data.vocab_size,
        min_frequency=1 if algorithm in ("characters", "alphabet") else 2,  # a character that occurs is one
        specials=specials or None,
        lowercase=data.lowercase and algorithm == "wordpiece",
    )


def texts(recipe: Recipe, side: int | None = None) -> Iterator[str]:
    """All text of the training data, in pieces, as a tokenizer learns from it; of pairs one ``side`` alone, or both."""
    data = recipe.data
    if data.format == "pairs":
        for pair in read_pairs(data.train, Tally(), lowercase=data.lowercase):
            yield from pair if side is None else (pair[side],)
        return
    if data.format == "labelled":
        for sample in read_labelled(data.train, Tally()):
            yield from filter(None, (sample.text, sample.second))
        return
    for piece in Documents(find(data.train)[0]):
        yield piece.text.lower() if data.lowercase else piece.text
