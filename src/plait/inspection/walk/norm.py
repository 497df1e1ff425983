"""The step of a norm: how a vector gets a common size, with its mean, deviation and weights."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from plait.inspection.walk.place import Place, wide
from plait.inspection.walk.step import Formula, Slot, Step, View
from plait.model.norm import Norm


def norm_step(
    place: Place,
    norm: Norm,
    name: str,
    read: tuple[str, Tensor],
    *,
    title: str,
    left: Tensor | None = None,
    group: str = "",
    lane: Literal["stream", "branch"] = "branch",
) -> tuple[Step, tuple[str, Tensor]]:
    """The step, and what it leaves: the name of that array, and its values ``(n, w)``.

    Args:
        read: what the norm reads, in the same way.
        left: what it left in the pass, where the trace has that; none: the norm is asked again.
    """
    x_name, x = read
    y = place.ask(norm, x) if left is None else left
    y_name = place.keep(f"{name}.output", y)
    mean = x.mean(-1, keepdim=True)
    centred = x - mean if norm.centred else x
    spread = (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    slots = {
        "x": Slot("number", f"{x_name}[p d]"),
        "spread": Slot("number", place.keep(f"{name}.spread", spread[:, 0]) + "[p]"),
        "y": Slot("number", f"{y_name}[p d]"),
    }
    told, symbols, filled = centred / spread, "x / r", "{x} / {spread}"
    if norm.centred:
        slots["mean"] = Slot("number", place.keep(f"{name}.mean", mean[:, 0]) + "[p]")
        symbols, filled = "(x − μ) / σ", "({x} − {mean}) / {spread}"
    if norm.weight is not None:
        told = told * (wide(norm.weight) + (1 if norm.offset else 0))
        slots["w"] = Slot("number", place.keep(f"{name}.weight", norm.weight) + "[d]")
        symbols += " × (1 + w)" if norm.offset else " × w"
        filled += " × (1 + {w})" if norm.offset else " × {w}"
    if norm.bias is not None:
        told = told + wide(norm.bias)
        slots["b"] = Slot("number", place.keep(f"{name}.bias", norm.bias) + "[d]")
        symbols, filled = f"{symbols} + b", f"{filled} + {{b}}"
    step = Step(
        name=name,
        title=title,
        says=("layernorm_says" if norm.centred else "rmsnorm_says",),
        found=("norm_found",),
        slots={
            "width": x.shape[-1],
            "before": Slot("size", f"{x_name}[p *]"),
            "after": Slot("size", f"{y_name}[p *]"),
            "token": Slot("token", "p"),
        },
        formulas=(Formula(symbols=f"y = {symbols}", filled=f"{filled} = {{y}}", slots=slots),),
        views=(
            View(kind="vector", label="before_norm", at=f"{x_name}[p *]", sets="d"),
            View(kind="vector", label="after_norm", at=f"{y_name}[p *]", sets="d"),
        ),
        group=group,
        lane=lane,
        check=place.check(name, told, y),
    )
    return step, (y_name, y)
