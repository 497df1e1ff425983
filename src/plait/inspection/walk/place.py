"""Place: where in a model the telling is; it takes values from the trace and keeps the arrays that steps speak of.

Legend: n tokens, w width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from plait.inspection.reading import spell
from plait.inspection.trace import Trace
from plait.inspection.walk.step import Sum
from plait.text import Tokenizer

PACKED = 4  # of a row of weights with more numbers than that, only the first, second and last are kept


@dataclass(frozen=True, eq=False)
class Kept:
    """What a walk keeps: numbers by name, and words in nested lists."""

    arrays: dict[str, Tensor] = field(default_factory=dict)
    texts: dict[str, list[list[str]]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Place:
    """A part of the model: ``path`` is its name in the trace, ``spec`` the same with ``@`` for the layer."""

    trace: Trace
    kept: Kept
    path: str
    spec: str

    def within(self, name: str) -> Place:
        """A part of this part."""
        return Place(self.trace, self.kept, f"{self.path}.{name}", f"{self.spec}.{name}")

    def seen(self, name: str) -> Tensor:
        """A value of the pass, at least float32."""
        return wide(self.trace[f"{self.path}.{name}"])

    def keep(self, name: str, value: Tensor) -> str:
        """An array for steps to speak of; its name there."""
        self.kept.arrays[f"{self.path}.{name}"] = wide(value.detach())
        return f"{self.spec}.{name}"

    def show(self, name: str) -> tuple[str, Tensor]:
        """A value of the pass, kept: its name, and itself."""
        value = self.seen(name)
        return self.keep(name, value), value

    def ask(self, part: Callable[[Tensor], Tensor], read: Tensor) -> Tensor:
        """What a part of the model makes of a value, in the model's own type."""
        return wide(part(read.to(self.trace.output.dtype)))

    def say(self, name: str, words: list[list[str]]) -> str:
        """Words for steps to speak of."""
        self.kept.texts[f"{self.path}.{name}"] = words
        return f"{self.spec}.{name}"

    def check(self, name: str, told: Tensor, value: Tensor) -> str:
        """How far what the formula gives is from the pass's own ``value``, as a share of what is large there."""
        return self.keep(f"{name}.off", off(told, value))

    def products(self, name: str, weight: Tensor, left: str, right: str = "[{}]") -> Sum:
        """The sum that a row of ``weight`` ``(..., w)`` makes with what is at ``left``; ``right`` has the axes that
        choose the row, and {} for the last."""
        width = weight.shape[-1]
        packed = width > PACKED
        columns = weight[..., [0, 1, width - 1]] if packed else weight
        return Sum(left=left, right=self.keep(name, columns) + right.format("*"), of=width, packed=packed)


def named(ids: Iterable[int], tokenizer: Tokenizer | None) -> list[str]:
    """Each token as it is spelt; one that is no text, [CLS] say, without the space that would stand before it."""
    specials = frozenset[int]() if tokenizer is None else tokenizer.special_ids
    return [spell(id, tokenizer).strip() if id in specials else spell(id, tokenizer) for id in ids]


def off(told: Tensor, value: Tensor) -> Tensor:
    """The largest difference, as a share of the largest value or of 1."""
    told, value = wide(told), wide(value)
    return (told - value).abs().max() / value.abs().max().clamp(min=1)


def wide(value: Tensor) -> Tensor:
    """At least float32."""
    return value.to(torch.promote_types(value.dtype, torch.float32))
