"""What a stream is made of, and what all kinds of streams share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plait.checkpoint import DecodeRules
from plait.data.by_tokens import ByTokens
from plait.data.samples import ByRows, Plan, Samples
from plait.data.stream import Stream
from plait.text import Tokenizer
from plait.training.places import RecipeError
from plait.training.settings import Recipe

Both = tuple[Stream, Stream | None]  # to learn from, and to be evaluated on


@dataclass(frozen=True)
class Inputs:
    """What a stream is made of: the recipe with its files located, the tokenizer, and how texts start and end."""

    recipe: Recipe
    tokenizer: Tokenizer
    rules: DecodeRules
    classes: tuple[str, ...] | None = None  # names of labels, in the order of the model's outputs

    def role(self, name: str) -> int:
        """The id of a special token that the objective needs; ``RecipeError`` where the vocabulary has none."""
        found = self.tokenizer.named.get(name)
        if found is None:
            raise RecipeError(
                f"data.tokenizer: the objective {self.recipe.objective.kind!r} needs a {name} token, and this "
                "vocabulary has none; name another, or let one be trained."
            )
        return found

    @property
    def pad(self) -> int:
        """What fills rows; it never counts."""
        return self.rules.pad or 0

    @property
    def start(self) -> int:
        """What a decoder behind an encoder begins with; ``RecipeError`` where the rules do not say."""
        if self.rules.start is None:
            raise RecipeError("model.from: the checkpoint's rules do not say what its decoder begins with.")
        return self.rules.start

    def samples(self, objective: Any, counts: dict[str, int | float]) -> Samples:
        """An objective's stream, its steps by rows or by tokens."""
        data, seed = self.recipe.data, self.recipe.run.seed
        sizes = objective.sizes
        plan: Plan
        if data.batch_tokens is not None:
            plan = ByTokens(sizes[0], sizes[1] if len(sizes) > 1 else None, batch_tokens=data.batch_tokens, seed=seed)
        else:
            plan = ByRows(len(sizes[0]), data.batch_rows or 1, seed=seed)
        return Samples(objective, plan, micro_batches=data.micro_batches, counts=counts)
