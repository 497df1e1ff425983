"""The folder of a run: what is in it, and who may write there.

recipe.toml  data.json (what the files held)  metrics.jsonl  tokenizer/  states/  report.html
model/ (an ordinary checkpoint)  adapter/ (LoRA's)
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.checkpoint.replacing import whole_file, whole_folder
from plait.data.sources import find, glimpse
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
    def data(self) -> Path:
        """What the files of the recipe held, in a few words."""
        return self.path / "data.json"

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
                "recipe that it began with, and another goes on from its model by model.from."
            )
        if self.data.exists():
            before, now = json.loads(self.data.read_text(encoding="utf-8")), contents(recipe)
            if changed := [side for side in before if before[side] != now[side]]:
                raise RecipeError(
                    f"data.{changed[0]}: the files hold something else than when the run at {self.path} began; put "
                    "them back, or begin another run."
                )
        return True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else writes here meanwhile; the system lets go of it when a process ends, however it does.

        Raises ``RecipeError`` where somebody does.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError, FileExistsError):  # no such lock here, or no folder
                import fcntl

                self.path.mkdir(parents=True, exist_ok=True)

                folder = os.open(self.path, os.O_RDONLY)
                stack.callback(os.close, folder)
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise RecipeError(
                        f"{self.path}: another run is writing there; wait for it, or choose another --out."
                    ) from None
                except OSError:  # a file system without locks
                    pass
                stack.callback(self._leave)
            yield

    def _leave(self) -> None:
        """Take the folder away if nothing came of it."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def begin(self, recipe: Recipe, tokenizer: Tokenizer | None) -> None:
        """Write down what the run is, before it runs."""
        self.path.mkdir(parents=True, exist_ok=True)
        fresh = not self.has_run()  # what lies here then is of a start that was broken off
        place = self.path / "tokenizer"
        if tokenizer is not None and (fresh or not place.exists()):
            old = [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()]
            with whole_folder(place, replaces=old) as new:
                tokenizer.save(new)
        if fresh or not self.data.exists():
            with whole_file(self.data) as new:
                new.write_text(json.dumps(contents(recipe)), encoding="utf-8")
        with whole_file(self.recipe) as new:
            new.write_text(to_text(recipe), encoding="utf-8")

    def tokenizer(self) -> Tokenizer | None:
        """That of the run which was begun here."""
        folder = self.path / "tokenizer"
        return load_tokenizer(folder) if folder.is_dir() else None


def contents(recipe: Recipe) -> dict[str, list[list[str]]]:
    """What the data's files hold, in a few words."""
    sides = {"train": recipe.data.train, "valid": recipe.data.valid}
    return {side: [glimpse(source) for source in find(names)[0]] if names else [] for side, names in sides.items()}


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
