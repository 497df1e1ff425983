"""Choice: what of a walk is looked at, and the numbers that are there."""

from __future__ import annotations

import re

from torch import Tensor

from plait.inspection.errors import InspectionError
from plait.inspection.walk.step import VARIABLES, Step
from plait.inspection.walk.telling import Told, Walk

PLACE = re.compile(r"(.+)\[(.*)\]")
INDEX = re.compile(r"(\d*)([a-z])(?:\+(\d+))?")


class Choice:
    """A layer, a head and a token of one tower, and one of everything else.

    Raises ``InspectionError`` for what there is not.
    """

    def __init__(self, walk: Walk, told: Told, *, layer: int = 0, head: int = 0, position: int | None = None) -> None:
        for name, value, most in (("layer", layer, len(told.layers)), ("head", head, told.n_heads)):
            if not 0 <= value < most:
                raise InspectionError(f"{name}: {value}, and the {told.name} has {name}s 0 to {most - 1}.")
        n = len(told.tokens)
        if position is not None and not -n <= position < n:
            raise InspectionError(f"position: {position}, and the {told.name} reads {n} tokens.")
        self.walk, self.told, self.layer = walk, told, layer
        self.variables: dict[str, int] = dict.fromkeys(VARIABLES, 0)
        self.variables |= {"h": head, "g": head // told.group, "p": told.place if position is None else position % n}

    @property
    def steps(self) -> tuple[Step, ...]:
        """Those of the tower, by way of the layer."""
        return self.told.steps(self.layer)

    def begin(self, step: Step) -> None:
        """Choose what a step begins with."""
        self.variables |= dict.fromkeys(VARIABLES[3:], 0)
        for variable, place in step.starts.items():
            self.variables[variable] = int(self.at(place).abs().argmax())

    def at(self, place: str) -> Tensor:
        """The values at a place; an axis is left for each ``*``."""
        name, axes = self._split(place)
        return self.walk.arrays[name][tuple(slice(None) if axis == "*" else self.index(axis) for axis in axes)]

    def text(self, place: str) -> str | list[str]:
        """The word at a place, or the words where a ``*`` is."""
        name, axes = self._split(place)
        rows = self.walk.texts[name]
        chosen = rows if axes[0] == "*" else [rows[self.index(axes[0])]]
        words = [row if axes[1] == "*" else row[self.index(axes[1])] for row in chosen]
        flat = words[0] if len(words) == 1 and axes[0] != "*" else words
        return flat  # type: ignore[return-value]

    def index(self, axis: str) -> int:
        """7, p, e+32 or 2i+1 as a number."""
        if axis.isdecimal():
            return int(axis)
        found = INDEX.fullmatch(axis)
        assert found is not None, axis
        times, variable, more = found.groups()
        return int(times or 1) * self.variables[variable] + int(more or 0)

    def seen(self, step: Step) -> tuple[str, ...]:
        """The tokens that a step looks at."""
        return next((told.tokens for told in self.walk.towers if told.name == step.seen), self.told.tokens)

    def _split(self, place: str) -> tuple[str, list[str]]:
        found = PLACE.fullmatch(place)
        assert found is not None, place
        return found[1].replace("@", str(self.layer)), found[2].split()
