"""The steps of a sublayer's end: what it adds, and where that is added to the residual stream."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from plait.inspection.walk.norm import norm_step
from plait.inspection.walk.place import Place, wide
from plait.inspection.walk.step import Filling, Formula, Slot, Step, View
from plait.model.norm import Slots

Read = tuple[str, Tensor]  # the name of an array, and its values (n, w)


def branch_steps(
    place: Place, slots: Slots, name: str, made: Tensor, step: Step, products: str, group: str
) -> Iterator[Step]:
    """The sublayer's last product, ``step``, then its norm behind, and the scale of what is added.

    Args:
        name: of the sublayer: attention, cross or ffn.
        made: what the product gives, ``(n, w)``.
        products: the left side of its formula.
    """
    branch_name, branch = place.show(f"{name}_branch")
    plain = slots.after is None and slots.residual_scale == 1.0
    y_name = branch_name if plain else place.keep(f"{name}_made", made)
    formula = Formula(
        symbols=step.formulas[0].symbols,
        filled=f"{products} = {{y}}",
        slots={**step.formulas[0].slots, "y": Slot("number", f"{y_name}[p d]")},
    )
    yield Step(
        name=step.name,
        title=step.title,
        says=step.says,
        found=("branch_found",) if plain else (),
        formulas=(formula, *step.formulas[1:]),
        views=(*step.views, View(kind="vector", label="made", at=f"{y_name}[p *]", sets="d")),
        slots={**step.slots, "added": Slot("size", f"{branch_name}[p *]"), "token": Slot("token", "p")},
        starts=step.starts,
        seen=step.seen,
        group=group,
        check=place.check(f"{name}_branch", made, branch) if plain else "",
    )
    read = (y_name, made)
    if slots.after is not None:
        scaled = slots.residual_scale != 1.0
        left = None if scaled else branch
        normed, read = norm_step(
            place, slots.after, f"{name}_norms.after", read, title="after_title", left=left, group=group
        )
        yield normed
    if slots.residual_scale != 1.0:
        yield Step(
            name=f"{name}_scale",
            title="branch_scale_title",
            says=("branch_scale_says",),
            found=("branch_found",),
            formulas=(
                Formula(
                    symbols=f"y = x × {slots.residual_scale:g}",
                    filled="{x} × {scale} = {y}",
                    slots={
                        "x": Slot("number", f"{read[0]}[p d]"),
                        "scale": slots.residual_scale,
                        "y": Slot("number", f"{branch_name}[p d]"),
                    },
                ),
            ),
            views=(View(kind="vector", label="added", at=f"{branch_name}[p *]", sets="d"),),
            slots={
                "added": Slot("size", f"{branch_name}[p *]"),
                "token": Slot("token", "p"),
                "scale": slots.residual_scale,
            },
            group=group,
            check=place.check(f"{name}_branch", read[1] * slots.residual_scale, branch),
        )


def join_steps(
    place: Place, slots: Slots, name: str, stream: Read, branches: tuple[str, ...], left: str, group: str
) -> Iterator[Step]:
    """What branches add to the ``stream``, and the norm behind it.

    Args:
        name: of the sublayer.
        branches: the sites of what is added.
        left: the site of the stream afterwards.
    """
    left_name, after = place.show(left)
    total = stream[1] * slots.skip_scale
    values: dict[str, Filling] = {"x": Slot("number", f"{stream[0]}[p d]"), "skip": slots.skip_scale}
    symbols = "x" if slots.skip_scale == 1.0 else f"x × {slots.skip_scale:g}"
    filled = "{x}" if slots.skip_scale == 1.0 else "{x} × {skip}"
    views = [View(kind="vector", label="stream_before", at=f"{stream[0]}[p *]", sets="d")]
    for branch in branches:
        total = total + place.seen(branch)
        key = branch.removesuffix("_branch")
        values[key] = Slot("number", f"{place.spec}.{branch}[p d]")
        symbols += " + " + {"attention": "a", "cross": "c", "ffn": "f"}[key]
        filled += f" + {{{key}}}"
        views.append(View(kind="vector", label=f"{key}_adds", at=f"{place.spec}.{branch}[p *]", sets="d"))
    sum_name = left_name if slots.merge is None else place.keep(f"{name}_sum", total)
    values["y"] = Slot("number", f"{sum_name}[p d]")
    yield Step(
        name=f"{name}_join",
        title="join_title",
        says=("join_says", *(() if slots.skip_scale == 1.0 else ("skip_says",))),
        found=("join_found",),
        formulas=(Formula(symbols=f"y = {symbols}", filled=f"{filled} = {{y}}", slots=values),),
        views=(*views, View(kind="vector", label="stream_after", at=f"{sum_name}[p *]", sets="d")),
        slots={
            "skip": slots.skip_scale,
            "token": Slot("token", "p"),
            "before": Slot("size", f"{stream[0]}[p *]"),
            "after": Slot("size", f"{sum_name}[p *]"),
        },
        group=group,
        lane="join",
        check=place.check(left, total, after) if slots.merge is None else "",
    )
    if slots.merge is not None:
        step, _ = norm_step(
            place,
            slots.merge,
            f"{name}_norms.merge",
            (sum_name, wide(total)),
            title="merge_title",
            left=after,
            group=group,
            lane="stream",
        )
        yield step
