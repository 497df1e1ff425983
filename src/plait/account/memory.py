"""Memory: what one device holds while a model is trained, in bytes, and what goes over the wire for it.

    data       every device has everything
    fsdp       every device has a part of each tensor's first dimension, and whole tensors of the layers at work
    tensor     a device has a slice of each matrix of a layer, and all the rest

Weights are float32, but under pure_bfloat16, where they are half as wide beside float32 masters; gradients, an
optimizer's memory and averages are float32 (``training/precision.py``, ``optimizers.py``, ``averaging.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import ceil, prod
from typing import Literal

from plait.account.passes import WIDE, Precision
from plait.parameters import Shape

Kind = Literal["data", "fsdp", "tensor"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a run.

    Args:
        shape: of the whole.
        moments: tensors of its shape that its optimizer keeps, 2 for AdamW and 1 for Muon; 0: it is frozen.
        cut: the dimension that tensor parallel slices; ``None``: none.
    """

    shape: Shape
    moments: int = 2
    cut: int | None = None

    @property
    def learns(self) -> bool:
        """Whether it is trained."""
        return self.moments > 0


@dataclass(frozen=True, kw_only=True)
class Spread:
    """``n`` devices for one model, of ``world`` in all; ``data`` has one for each."""

    kind: Kind
    n: int
    world: int

    @property
    def readers(self) -> int:
        """How many read other rows."""
        return self.world // self.n if self.kind == "tensor" else self.world

    def numbers(self, parameter: Parameter) -> int:
        """How many numbers of a parameter one device holds; of uneven parts the largest."""
        if self.kind == "fsdp" and parameter.shape:
            return ceil(parameter.shape[0] / self.world) * prod(parameter.shape[1:])
        if self.kind == "tensor" and parameter.cut is not None:
            return prod(parameter.shape) // self.n
        return prod(parameter.shape)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one device. ``activations`` are those at the end of a forward pass; ``temporary`` is the most that comes
    and goes beside them; ``gathered`` what FSDP puts together for the layers at work."""

    weights: int
    gradients: int
    optimizer: int
    masters: int = 0
    averages: int = 0
    gathered: int = 0
    activations: int = 0
    temporary: int = 0

    @property
    def total(self) -> int:
        """The sum."""
        return sum(self.to_dict().values())

    def to_dict(self) -> dict[str, int]:
        """By name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def held(
    parameters: Mapping[str, Parameter], spread: Spread, *, precision: Precision, averages: int = 0
) -> dict[str, int]:
    """What stays from step to step, and gradients: the fields of ``Memory`` that do not depend on rows.

    ``averages``: copies of what the optimizer moves that are kept: 1 for a moving average.
    """
    pure = precision == "pure_bfloat16"
    numbers = {name: spread.numbers(parameter) for name, parameter in parameters.items()}
    learnt = {name: numbers[name] for name, parameter in parameters.items() if parameter.learns}
    moments = sum(
        parameters[name].moments * n * WIDE + (WIDE if parameters[name].moments == 2 else 0)  # AdamW's count of steps
        for name, n in learnt.items()
    )
    averaged = learnt if pure else numbers
    return {
        "weights": sum(numbers.values()) * (2 if pure else WIDE),
        "gradients": sum(learnt.values()) * WIDE,
        "optimizer": moments,
        "masters": sum(learnt.values()) * WIDE if pure else 0,
        "averages": sum(averaged.values()) * WIDE * averages,
        "gathered": gathered(parameters) if spread.kind == "fsdp" and spread.world > 1 else 0,
    }


def unit_of(name: str) -> str:
    """The group in which FSDP gathers a parameter: its layer, or ``""`` for all that is in none."""
    words = name.split(".")
    return ".".join(words[:3]) if words[1] == "layers" else ""


def units(parameters: Mapping[str, Parameter]) -> dict[str, dict[str, Parameter]]:
    """Parameters by their group."""
    found: dict[str, dict[str, Parameter]] = {"": {}}
    for name, parameter in parameters.items():
        found.setdefault(unit_of(name), {})[name] = parameter
    return found


def gathered(parameters: Mapping[str, Parameter]) -> int:
    """Whole weights beside a device's own part: what is in no layer, the layer at work and the one after it, and the
    gradients of one."""
    sizes = {unit: sum(prod(p.shape) for p in members.values()) for unit, members in units(parameters).items()}
    outside = sizes.pop("")
    layers = sorted(sizes.values(), reverse=True)
    learnt = max(
        sum(prod(p.shape) for p in members.values() if p.learns) for members in units(parameters).values()
    )  # a group's gradients are whole until they are summed
    return WIDE * (outside + sum(layers[:2]) + learnt)
