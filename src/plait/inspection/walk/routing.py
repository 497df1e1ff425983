"""The steps of a mixture of experts: who is picked for a token, what each makes of it, and their sum.

Legend: n tokens, j neurons, s experts of a token, e experts.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from plait.inspection.walk.feeding import GROUP, activation_of, explained, fired, network_steps
from plait.inspection.walk.joining import Read, branch_steps
from plait.inspection.walk.place import Place, wide
from plait.inspection.walk.step import Filling, Formula, Slot, Step, Sum, View
from plait.model.experts import Experts
from plait.model.feedforward import gated
from plait.model.grouped import GroupedLinear
from plait.model.norm import Slots


def experts_steps(place: Place, ffn: Experts, slots: Slots, read: Read) -> Iterator[Step]:
    """From what the sublayer reads to what it adds."""
    inner = place.within("ffn")
    routes = place.seen("ffn.routes")
    picked = routes != 0
    per_token = place.seen("ffn.hidden").shape[1]
    numbers = picked.int().sort(dim=-1, descending=True, stable=True)[1][:, :per_token]  # n s
    weights = routes.gather(-1, numbers)
    names = inner.say("numbers", [[str(number) for number in row] for row in numbers.tolist()])
    weights_name = inner.keep("weights", weights)
    starts = {"s": f"{weights_name}[p *]", "j": f"{inner.spec}.activation[p s *]"}
    yield _routed(inner, ffn, names, weights_name, per_token)
    yield from _fires(inner, ffn, read, numbers, names, weights_name, starts, activation_of(place))
    activation = place.seen("ffn.activation")
    made = _each(ffn.experts.down, activation, numbers)
    made_name = inner.keep("made", made)
    total = (made * weights[..., None]).sum(1)
    products = Sum(left=f"{weights_name}[p *]", right=f"{made_name}[p * d]", of=per_token)
    fill: dict[str, Filling] = {"sum": products}
    symbols, filled = "y = Σ w × E(x)", "{sum}"
    views = [
        View(
            kind="bars",
            label="experts",
            at=f"{weights_name}[p *]",
            sets="s",
            scale="share",
            more={"names": f"{names}[p *]"},
        )
    ]
    if ffn.shared is not None:
        yield from network_steps(inner.within("shared"), ffn.shared, read, activation_of(place), shared=True)
        shared = place.ask(ffn.shared.down, place.seen("ffn.shared.activation"))
        if ffn.shared_gate is not None:
            scale = place.seen("ffn.shared_scale")
            fill["gate"] = Slot("number", inner.keep("shared_scale", scale[:, 0]) + "[p]")
            symbols, filled = f"{symbols} + g × S(x)", f"{filled} + {{gate}} × {{shared}}"
            total = total + scale * shared
        else:
            symbols, filled = f"{symbols} + S(x)", f"{filled} + {{shared}}"
            total = total + shared
        fill["shared"] = Slot("number", inner.keep("shared.made", shared) + "[p d]")
        views.append(View(kind="vector", label="shared", at=f"{inner.spec}.shared.made[p *]", sets="d"))
    step = Step(
        name="down",
        title="experts_down_title",
        says=("experts_down_says",),
        formulas=(Formula(symbols=symbols, filled="", slots=fill),),
        views=tuple(views),
        slots={"picked": per_token},
        starts=starts,
    )
    yield from branch_steps(place, slots, "ffn", total, step, filled, GROUP)


def _each(linear: GroupedLinear, x: Tensor, numbers: Tensor) -> Tensor:
    """What the experts ``numbers`` ``(n, s)`` make of ``x`` ``(n, s, in)``: ``(n, s, out)``."""
    rows = [
        linear.columns(one.to(linear.weight.dtype)[:, None], number)[:, 0]
        for one, number in zip(x.flatten(0, 1), numbers.flatten().tolist(), strict=True)
    ]
    return wide(torch.stack(rows).detach()).view(*numbers.shape, -1)


def _routed(inner: Place, ffn: Experts, names: str, weights: str, per_token: int) -> Step:
    scores, _ = inner.show("router.scores")
    all_names = inner.say("experts", [[str(i) for i in range(ffn.n_experts)]])
    return Step(
        name="routes",
        title="routes_title",
        says=("routes_says",),
        found=("routes_found",),
        formulas=(
            Formula(
                symbols="w",
                filled="{weight} = {percent}",
                slots={"weight": Slot("number", f"{weights}[p s]"), "percent": Slot("percent", f"{weights}[p s]")},
            ),
        ),
        views=(
            View(
                kind="bars",
                label="router",
                at=f"{scores}[p *]",
                scale="share",
                more={"names": f"{all_names}[0 *]", "most": "12"},
            ),
            View(
                kind="bars",
                label="experts",
                at=f"{weights}[p *]",
                sets="s",
                scale="share",
                more={"names": f"{names}[p *]"},
            ),
        ),
        slots={
            "token": Slot("token", "p"),
            "experts": ffn.n_experts,
            "picked": per_token,
            "best": Slot("text", f"{names}[p s]"),
            "share": Slot("percent", f"{weights}[p s]"),
        },
        starts={"s": f"{weights}[p *]"},
        group=GROUP,
    )


def _fires(
    inner: Place,
    ffn: Experts,
    read: Read,
    numbers: Tensor,
    names: str,
    weights: str,
    starts: dict[str, str],
    act: str,
) -> Iterator[Step]:
    """Hidden numbers and activations of a token's experts, one of which is looked at."""
    hidden_name, hidden = inner.show("hidden")
    activation_name, activation = inner.show("activation")
    parts = ffn.experts
    views = [
        View(
            kind="bars", label="experts", at=f"{weights}[p *]", sets="s", scale="share", more={"names": f"{names}[p *]"}
        )
    ]
    views.append(
        View(kind="vector", label="hidden" if parts.gate is None else "gate", at=f"{hidden_name}[p s *]", sets="j")
    )
    told = ffn.act(hidden)
    if parts.gate is not None:
        up = _each(parts.up, read[1][:, None].expand(*numbers.shape, -1), numbers)
        views.append(View(kind="vector", label="up", at=inner.keep("up", up) + "[p s *]", sets="j"))
        told = gated(ffn.act, hidden, up, ffn.limit, ffn.offset)
    views.append(View(kind="vector", label="activation", at=f"{activation_name}[p s *]", sets="j"))
    yield Step(
        name="activation",
        title="experts_activation_title",
        says=("experts_activation_says", *explained(act)),
        found=("fires_found",),
        formulas=(fired(ffn, act, hidden_name, f"{inner.spec}.up", activation_name, "p s j"),),
        views=tuple(views),
        slots={
            "token": Slot("token", "p"),
            "expert": Slot("text", f"{names}[p s]"),
            "neuron": Slot("most_index", f"{activation_name}[p s *]"),
            "value": Slot("most", f"{activation_name}[p s *]"),
            "d_ff": hidden.shape[-1],
        },
        starts=starts,
        group=GROUP,
        check=inner.check("told.activation", told, activation),
    )
