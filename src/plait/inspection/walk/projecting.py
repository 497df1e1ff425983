"""The steps from the residual stream to queries, keys and values: projections, norms of heads, and RoPE's rotation.

Legend: n tokens, h heads, e head width, r rotated dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plait.inspection.walk.joining import Read
from plait.inspection.walk.place import Place, wide
from plait.inspection.walk.step import Filling, Formula, Slot, Step, View
from plait.model.attention import Attention
from plait.model.linear import Linear
from plait.model.norm import Norm
from plait.model.position import Rotation, attention_factor, inverse_frequencies


@dataclass(frozen=True, eq=False)
class Turning:
    """RoPE in one layer: how it turns, and the row's positions."""

    rotation: Rotation
    n: int

    def table(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines ``(1, 1, n, r / 2)``."""
        positions = torch.arange(self.n, device=like.device)[None]
        return self.rotation.table(positions, torch.tensor([self.n], device=like.device), like.dtype)

    def frequencies(self, like: Tensor) -> Tensor:
        """Radians a position, ``(r / 2,)``."""
        return inverse_frequencies(self.rotation.rope, self.rotation.dim, torch.tensor([self.n], device=like.device))[0]


@dataclass(frozen=True, eq=False)
class Sides:
    """What attention reads: queries are of ``own`` tokens, keys and values of the ``other``, in the tower ``seen``."""

    own: Read
    other: Read
    seen: str

    @property
    def k(self) -> str:
        """The variable that counts the token whose key is shown."""
        return "p" if self.own is self.other else "k"


Stage = tuple[str, Tensor]  # what was done, and what it gave: (h, n, e)


def stages(attention: Attention, linear: Linear, norm: Norm | None, y: Tensor, turning: Turning | None) -> list[Stage]:
    """From a projection ``y`` ``(n, h * e)`` to queries or keys, as ``Attention`` makes them."""

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, attention.d_head)).transpose(0, 1)

    found = [("projected", split(y))]
    over_all = norm is not None and norm.width != attention.d_head
    if norm is not None and over_all:
        found.append(("normed", split(norm(y))))
    elif norm is not None and not attention.turns_first:
        found.append(("normed", norm(found[-1][1].transpose(0, 1)).transpose(0, 1)))
    if attention.clip is not None:
        found.append(("clipped", found[-1][1].clamp(-attention.clip, attention.clip)))
    if turning is not None:
        found.append(("turned", turning.rotation.turn(found[-1][1][None], turning.table(y))[0]))
    if norm is not None and not over_all and attention.turns_first:
        found.append(("normed", norm(found[-1][1].transpose(0, 1)).transpose(0, 1)))
    return found


def projecting_steps(
    place: Place, attention: Attention, sides: Sides, turning: Turning | None, group: str
) -> Iterator[Step]:
    """Queries, keys and values. They are kept as ``queries``, ``keys`` and ``values``."""
    dtype, k = place.trace.output.dtype, sides.k
    own, other = sides.own[1].to(dtype), sides.other[1].to(dtype)
    queries = stages(attention, attention.query, attention.query_norm, attention.query(own), turning)
    keys = stages(attention, attention.key, attention.key_norm, attention.key(other), turning)
    values = stages(attention, attention.value, None, attention.value(other), None)
    chains = {"queries": queries, "keys": keys, "values": values}
    names = {what: _names(place, what, chain) for what, chain in chains.items()}
    done = [what for what, chain in chains.items() if len(chain) == 1]
    yield _checked(_projected(place, attention, sides, names, group), place, chains, done)
    for turn, (kind, _) in enumerate(queries[1:], start=1):
        before, after = ({what: names[what][i] for what in ("queries", "keys")} for i in (turn - 1, turn))
        if kind == "turned":
            assert turning is not None
            step = _turned(place, turning, before, after, k, group)
        else:
            step = _adjusted(kind, attention, before, after, k, group)
        last = turn + 1 == len(queries)
        yield _checked(step, place, chains, [what for what in chains if what not in done]) if last else step


def _names(place: Place, what: str, chain: list[Stage]) -> list[str]:
    """Names of a chain's arrays; the last is what the pass has."""
    names = [place.keep(f"{kind}.{what}", wide(value)) for kind, value in chain[:-1]]
    return [*names, place.show(what)[0]]


def _checked(step: Step, place: Place, chains: dict[str, list[Stage]], done: list[str]) -> Step:
    """The step, which ends these chains, with how far they are from what the pass has."""
    if not done:
        return step
    told = torch.cat([chains[one][-1][1].flatten() for one in done])
    passed = torch.cat([place.seen(one).flatten() for one in done])
    return replace(step, check=place.check(f"told.{step.name}", told, passed))


def _projected(place: Place, attention: Attention, sides: Sides, names: dict[str, list[str]], group: str) -> Step:
    formulas: list[Formula] = []
    views = [View(kind="vector", label="read", at=f"{sides.own[0]}[p *]", sets="d")]
    if sides.k != "p":
        views.append(View(kind="vector", label="memory_read", at=f"{sides.other[0]}[k *]", sets="d"))
    for what, linear, head, token, read in (
        ("queries", attention.query, "h", "p", sides.own[0]),
        ("keys", attention.key, "g", sides.k, sides.other[0]),
        ("values", attention.value, "g", sides.k, sides.other[0]),
    ):
        letter = what[0]
        weight = linear.weight.unflatten(0, (-1, attention.d_head))
        made = f"{names[what][0]}[{head} {token} e]"
        slots: dict[str, Filling] = {
            "sum": place.products(f"{what}.weight", weight, f"{read}[{token} *]", f"[{head} e {{}}]"),
            "y": Slot("number", made),
        }
        symbols, filled = f"{letter} = W{letter} · x", "{sum}"
        if linear.bias is not None:
            bias = place.keep(f"{what}.bias", linear.bias.unflatten(0, (-1, attention.d_head)))
            slots["b"] = Slot("number", f"{bias}[{head} e]")
            symbols, filled = f"{symbols} + b", f"{filled} + {{b}}"
        formulas.append(Formula(symbols=symbols, filled=f"{filled} = {{y}}", slots=slots))
        views.append(View(kind="vector", label=what, at=f"{names[what][0]}[{head} {token} *]", sets="e"))
    return Step(
        name="projections",
        title="projections_title",
        says=(
            "projections_says" if sides.k == "p" else "cross_projections_says",
            *(("grouped_says",) if attention.group > 1 else ()),
        ),
        formulas=tuple(formulas),
        views=tuple(views),
        slots={
            "d_model": attention.query.weight.shape[1],
            "d_head": attention.d_head,
            "heads": attention.query.weight.shape[0] // attention.d_head,
            "kv_heads": attention.key.weight.shape[0] // attention.d_head,
            "group": attention.group,
            "head": Slot("index", "h"),
            "kv_head": Slot("index", "g"),
        },
        group=group,
        seen=sides.seen,
        starts={} if sides.k == "p" else {"k": f"{place.spec}.pattern[h p *]"},
    )


def _adjusted(
    kind: str, attention: Attention, before: dict[str, str], after: dict[str, str], k: str, group: str
) -> Step:
    """Queries and keys normed, or clipped."""
    symbols = "{} → norm({})" if kind == "normed" else f"{{}} → max(−c, min({{}}, c)), c = {attention.clip:g}"
    axes = {"queries": "h p", "keys": f"g {k}"}
    return Step(
        name=kind,
        title=f"{kind}_title",
        says=(f"{kind}_says",),
        formulas=tuple(
            Formula(
                symbols=symbols.format(what[0], what[0]),
                filled="{x} → {y}",
                slots={
                    "x": Slot("number", f"{before[what]}[{axes[what]} e]"),
                    "y": Slot("number", f"{after[what]}[{axes[what]} e]"),
                },
            )
            for what in axes
        ),
        views=tuple(View(kind="vector", label=what, at=f"{after[what]}[{axes[what]} *]", sets="e") for what in axes),
        slots={} if kind == "normed" or attention.clip is None else {"clip": attention.clip},
        group=group,
    )


def _turned(place: Place, turning: Turning, before: dict[str, str], after: dict[str, str], k: str, group: str) -> Step:
    """Queries and keys rotated by their positions, a pair of numbers by an angle of its own."""
    rope, half = turning.rotation.rope, turning.rotation.dim // 2
    like = place.trace.output
    cosines, sines = turning.table(like)
    frequencies = turning.frequencies(like)
    angles = torch.arange(turning.n, device=like.device)[:, None] * frequencies
    first, second = ("2i", "2i+1") if rope.interleaved else ("i", f"i+{half}")
    slots: dict[str, Filling] = {
        "x": Slot("number", f"{before['queries']}[h p {first}]"),
        "other": Slot("number", f"{before['queries']}[h p {second}]"),
        "cos": Slot("number", place.keep("rope.cos", cosines[0, 0]) + "[p i]"),
        "sin": Slot("number", place.keep("rope.sin", sines[0, 0]) + "[p i]"),
        "y": Slot("number", f"{after['queries']}[h p {first}]"),
        "p": Slot("index", "p"),
        "frequency": Slot("number", place.keep("rope.frequency", frequencies) + "[i]"),
        "angle": Slot("number", place.keep("rope.angle", angles) + "[p i]"),
    }
    factor = attention_factor(rope.scaling) if rope.scaling else 1.0
    partial = turning.rotation.dim < place.kept.arrays[f"{place.path}.queries"].shape[-1]
    pair = {
        "x": f"{before['queries']}[h p {first}]",
        "y": f"{before['queries']}[h p {second}]",
        "turned_x": f"{after['queries']}[h p {first}]",
        "turned_y": f"{after['queries']}[h p {second}]",
    }
    return Step(
        name="rotation",
        title="rotation_title",
        says=("rotation_says", *(("partial_says",) if partial else ()), *(("factor_says",) if factor != 1.0 else ())),
        formulas=(
            Formula(symbols="θ = p × ωᵢ", filled="{p} × {frequency} = {angle}", slots=slots),
            Formula(symbols="q′₁ = q₁ × cos θ − q₂ × sin θ", filled="{x} × {cos} − {other} × {sin} = {y}", slots=slots),
        ),
        views=(
            View(kind="turn", label="pair", sets="i", more=pair),
            View(kind="vector", label="angles", at=f"{place.spec}.rope.angle[p *]", sets="i"),
            View(kind="vector", label="queries_turned", at=f"{after['queries']}[h p *]", sets="e"),
            View(kind="vector", label="keys_turned", at=f"{after['keys']}[g {k} *]", sets="e"),
        ),
        slots={"dim": turning.rotation.dim, "factor": factor, "theta": float(rope.theta)},
        group=group,
    )
