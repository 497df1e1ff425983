"""The folder of a run: what is in it, and who may write there.

recipe.toml  metrics.jsonl  tokenizer/  states/  report.html  model/ (an ordinary checkpoint)  adapter/ (LoRA's)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.checkpoint.replacing import whole_file, whole_folder
from plait.text import Tokenizer, load_tokenizer
from plait.training.places import SECTIONS, RecipeError, keys
from plait.training.recipe import read_recipe, to_text
from plait.training.settings import Recipe

MAY_CHANGE = {  # in a run that goes on: what is shown, kept and measured, and when it ends by the clock
    "run.minutes", "run.save_every", "run.keep", "run.log_every", "run.threads", "run.out",
    "run.activation_checkpointing", "run.compile", "run.parallel",
    "data.cache", "data.train", "data.valid",  # files may have moved
    "evaluate.every", "evaluate.batches", "evaluate.samples", "evaluate.beams",
}  # fmt: skip


@dataclass(frozen=True)
class Folder:
    """Where a run keeps what it makes."""

    path: Path

    @property
    def recipe(self) -> Path:
        """The resolved recipe."""
        return self.path / "recipe.toml"

    @property
    def metrics(self) -> Path:
        """What was measured."""
        return self.path / "metrics.jsonl"

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    @property
    def model(self) -> Path:
        """The checkpoint."""
        return self.path / "model"

    @property
    def adapter(self) -> Path:
        """LoRA's matrices, where there are some."""
        return self.path / "adapter"

    def has_run(self) -> bool:
        """Whether a run was begun here."""
        return self.recipe.exists() or (self.path / "states").exists()

    def check(self, recipe: Recipe, *, resume: bool) -> bool:
        """Whether there is a run to go on with.

        Raises ``RecipeError`` for a run that is there and is not meant to go on, for one of another recipe, and for a
        file in the folder's place.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RecipeError(f"{self.path}: this is a file; choose a folder for the run.")
        if not self.has_run():
            return False
        if not resume:
            raise RecipeError(f"{self.path}: a run is there; go on with it by --resume, or choose another --out.")
        if self.recipe.exists() and (other := differences(read_recipe(self.recipe), recipe)):
            place, (before, now) = next(iter(other.items()))
            raise RecipeError(
                f"{place}: it was {before!r} in the run at {self.path}, and is {now!r} now; a run goes on with the "
                "recipe that it began with."
            )
        return True

    def begin(self, recipe: Recipe, tokenizer: Tokenizer | None) -> None:
        """Write down what the run is, before it runs."""
        self.path.mkdir(parents=True, exist_ok=True)
        if tokenizer is not None and not (self.path / "tokenizer").exists():
            with whole_folder(self.path / "tokenizer") as new:
                tokenizer.save(new)
        with whole_file(self.recipe) as new:
            new.write_text(to_text(recipe), encoding="utf-8")

    def tokenizer(self) -> Tokenizer | None:
        """That of the run which was begun here."""
        folder = self.path / "tokenizer"
        return load_tokenizer(folder) if folder.is_dir() else None


def differences(before: Recipe, now: Recipe) -> dict[str, tuple[Any, Any]]:
    """The settings, by place, in which two recipes differ and a run that goes on must not."""
    found: dict[str, tuple[Any, Any]] = {}
    for section in SECTIONS:
        for key, field in keys(section).items():
            pair = tuple(getattr(getattr(recipe, section), field.name) for recipe in (before, now))
            if pair[0] != pair[1] and f"{section}.{key}" not in MAY_CHANGE:
                found[f"{section}.{key}"] = (pair[0], pair[1])
    ours, theirs = (dict(recipe.model.overrides) for recipe in (before, now))
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            found[f"model.{key}"] = (ours.get(key), theirs.get(key))
    return found
