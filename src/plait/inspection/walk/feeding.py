"""The steps of a feed-forward network: neurons, which of them fire, and what they add.

Legend: n tokens, j neurons, w width of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from plait.inspection.walk.joining import Read, branch_steps
from plait.inspection.walk.place import Place
from plait.inspection.walk.step import Filling, Formula, Slot, Step, Sum, View
from plait.model.experts import Experts
from plait.model.feedforward import FeedForward, gated
from plait.model.norm import Slots

GROUP = "ffn"
SYMBOLS = {
    "relu": "max(0, {x})",
    "relu2": "max(0, {x})²",
    "gelu": "{x} × Φ({x})",
    "gelu_tanh": "{x} × (1 + tanh(0.7979 × ({x} + 0.04472 × {x}³))) / 2",
    "quick_gelu": "{x} × sigmoid(1.702 × {x})",
    "silu": "{x} × sigmoid({x})",
    "tanh": "tanh({x})",
}
EXPLAINED = {"gelu": "phi_says", "silu": "sigma_says", "quick_gelu": "sigma_says"}
MOST = 8  # neurons that are named


def ffn_steps(place: Place, ffn: FeedForward, slots: Slots, read: Read) -> Iterator[Step]:
    """From what the sublayer reads to what it adds."""
    inner = place.within("ffn")
    yield from network_steps(inner, ffn, read, activation_of(place))
    activation = place.seen("ffn.activation")
    starts = {"j": f"{inner.spec}.activation[p *]"}
    products = inner.products("down", ffn.down.weight, f"{inner.spec}.activation[p *]", "[d {}]")
    yield from branch_steps(
        place, slots, "ffn", place.ask(ffn.down, activation), *_down(inner, ffn, products, starts), GROUP
    )


def activation_of(place: Place) -> str:
    """The activation's name."""
    return place.trace.model.architecture.activation


def explained(act: str) -> tuple[str, ...]:
    """A sentence on what the activation's symbols mean, where they need one."""
    return (EXPLAINED[act],) if act in EXPLAINED else ()


def network_steps(inner: Place, ffn: FeedForward, read: Read, act: str, *, shared: bool = False) -> Iterator[Step]:
    """Hidden numbers and activations of one network, or of the expert that all tokens share."""
    before = "shared_" if shared else ""
    linears = {"hidden": ffn.up} if ffn.gate is None else {"hidden": ffn.gate, "up": ffn.up}
    hidden_name, hidden = inner.show("hidden")
    activation_name, activation = inner.show("activation")
    made = {name: inner.ask(linear, read[1]) for name, linear in linears.items()}
    starts = {"j": f"{activation_name}[p *]"}
    formulas: list[Formula] = []
    views = [View(kind="vector", label="read", at=f"{read[0]}[p *]", sets="d")]
    for name, linear in linears.items():
        at = hidden_name if name == "hidden" else inner.keep(name, made[name])
        slots: dict[str, Filling] = {
            "sum": inner.products(f"{name}.weight", linear.weight, f"{read[0]}[p *]", "[j {}]"),
            "y": Slot("number", f"{at}[p j]"),
        }
        letter = "h" if ffn.gate is None else {"hidden": "g", "up": "u"}[name]
        symbols, filled = f"{letter} = W{letter} · x", "{sum}"
        if linear.bias is not None:
            slots["b"] = Slot("number", inner.keep(f"{name}.bias", linear.bias) + "[j]")
            symbols, filled = f"{symbols} + b", f"{filled} + {{b}}"
        formulas.append(Formula(symbols=symbols, filled=f"{filled} = {{y}}", slots=slots))
        views.append(View(kind="vector", label="gate" if letter == "g" else name, at=f"{at}[p *]", sets="j"))
    yield Step(
        name=f"{before}hidden",
        title=f"{before}hidden_title",
        says=("hidden_says" if ffn.gate is None else "gated_hidden_says",),
        formulas=tuple(formulas),
        views=tuple(views),
        slots={"d_model": read[1].shape[-1], "d_ff": hidden.shape[-1]},
        starts=starts,
        group=GROUP,
        check=inner.check("told.hidden", made["hidden"], hidden),
    )
    told = inner.ask(ffn.act, hidden) if ffn.gate is None else gated(ffn.act, hidden, made["up"], ffn.limit, ffn.offset)
    yield Step(
        name=f"{before}activation",
        title=f"{before}activation_title",
        says=("activation_says" if ffn.gate is None else "gate_says", *explained(act)),
        found=("fires_found",),
        formulas=(fired(ffn, act, hidden_name, f"{inner.spec}.up", activation_name, "p j"),),
        views=(
            View(kind="bars", label="neurons", at=f"{activation_name}[p *]", sets="j", more={"most": str(MOST)}),
            View(kind="vector", label="activation", at=f"{activation_name}[p *]", sets="j"),
        ),
        slots={
            "token": Slot("token", "p"),
            "neuron": Slot("most_index", f"{activation_name}[p *]"),
            "value": Slot("most", f"{activation_name}[p *]"),
            "d_ff": hidden.shape[-1],
        },
        starts=starts,
        group=GROUP,
        check=inner.check("told.activation", told, activation),
    )


def fired(ffn: FeedForward | Experts, act: str, hidden: str, up: str, activation: str, axes: str) -> Formula:
    """An activation, of a gate times what it gates where there is one."""
    is_gated = (ffn.gate if isinstance(ffn, FeedForward) else ffn.experts.gate) is not None
    slots: dict[str, Filling] = {
        "x": Slot("number", f"{hidden}[{axes}]"),
        "y": Slot("number", f"{activation}[{axes}]"),
    }
    x, field = ("g", "{x}") if is_gated else ("h", "{x}")
    if ffn.limit is not None:
        x, field = f"min({x}, {ffn.limit:g})", f"min({{x}}, {ffn.limit:g})"
    symbols, filled = (SYMBOLS[act].replace("{x}", one) for one in (x, field))
    if is_gated:
        slots["up"] = Slot("number", f"{up}[{axes}]")
        factor, shown = "u", "{up}"
        if ffn.limit is not None:
            factor, shown = (f"max(−{ffn.limit:g}, min({one}, {ffn.limit:g}))" for one in (factor, shown))
        if ffn.offset:
            factor, shown = (f"({one} + {ffn.offset:g})" for one in (factor, shown))
        symbols, filled = f"{symbols} × {factor}", f"{filled} × {shown}"
    return Formula(symbols=f"a = {symbols}", filled=f"{filled} = {{y}}", slots=slots)


def _down(inner: Place, ffn: FeedForward, products: Sum, starts: dict[str, str]) -> tuple[Step, str]:
    """The last product's step, unfinished, and the left side of its formula."""
    slots: dict[str, Filling] = {"sum": products}
    symbols, filled = "y = W · a", "{sum}"
    if ffn.down.bias is not None:
        slots["b"] = Slot("number", inner.keep("down.bias", ffn.down.bias) + "[d]")
        symbols, filled = f"{symbols} + b", f"{filled} + {{b}}"
    step = Step(
        name="down",
        title="down_title",
        says=("down_says",),
        formulas=(Formula(symbols=symbols, filled="", slots=slots),),
        views=(View(kind="vector", label="activation", at=f"{inner.spec}.activation[p *]", sets="j"),),
        slots={"d_ff": products.of, "d_model": ffn.down.weight.shape[0]},
        starts=starts,
    )
    return step, filled
