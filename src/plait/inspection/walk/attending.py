"""The steps from queries, keys and values to what a head brings back: scores, mask, pattern and mix.

Legend: h heads, q queries, k keys, e head width.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from plait.inspection.walk.place import Place, wide
from plait.inspection.walk.step import Filling, Formula, Slot, Step, Sum, View
from plait.model.attention import Attention


def attending_steps(
    place: Place, attention: Attention, allowed: Tensor, rule: str, bias: Tensor | None, *, group: str, seen: str
) -> Iterator[Step]:
    """From ``queries``, ``keys`` and ``values``, which are kept, to the mix.

    Args:
        allowed: who sees whom, ``(q, k)``; ``rule`` says in symbols who does not.
        bias: what is added to scores, ``(h, q, k)``.
        seen: the tower whose tokens are looked at.
    """
    shared = {"group": group, "seen": seen, "starts": {"k": f"{place.spec}.pattern[h p *]"}}
    scores_name, scores = place.show("scores")
    chain = _scores(place, attention, bias)
    names = [place.keep(f"told.{kind}", value) for kind, value in chain[:-1]] + [scores_name]
    check = place.check("told.scores", chain[-1][1], scores)
    products = Sum(left=f"{place.spec}.queries[h p *]", right=f"{place.spec}.keys[g k *]", of=attention.d_head)
    for turn, (kind, _) in enumerate(chain):
        yield _score(place, kind, attention, names, turn, products, shared, check if turn == len(chain) - 1 else "")
    yield _masked(place, scores_name, scores, allowed, rule, shared)
    yield _pattern(place, attention, scores, allowed, shared)
    yield _mix(place, attention, shared)


def _scores(place: Place, attention: Attention, bias: Tensor | None) -> list[tuple[str, Tensor]]:
    """The scores as they come about: products, capped, with a bias."""
    queries, keys = place.seen("queries"), place.seen("keys").repeat_interleave(attention.group, dim=0)
    chain = [("products", queries * attention.scale @ keys.transpose(-1, -2))]
    if (cap := attention.softcap) is not None:
        chain.append(("capped", cap * torch.tanh(chain[-1][1] / cap)))
    if bias is not None:
        chain.append(("biased", chain[-1][1] + bias))
    return chain


def _score(
    place: Place, kind: str, attention: Attention, names: list[str], turn: int, products: Sum, shared: dict, check: str
) -> Step:
    at, before = names[turn], names[max(turn - 1, 0)]
    slots: dict[str, Filling] = {"y": Slot("number", f"{at}[h p k]"), "x": Slot("number", f"{before}[h p k]")}
    views = [View(kind="grid", label="scores", at=f"{at}[h * *]", sets="p k")]
    if kind == "products":
        slots |= {"sum": products, "scale": attention.scale}
        symbols, filled = f"s = (q · k) × {attention.scale:.4g}", "({sum}) × {scale} = {y}"
        views = [
            View(kind="vector", label="query_of", at=products.left, sets="e"),
            View(kind="vector", label="key_of", at=products.right, sets="e"),
            *views,
        ]
    elif kind == "capped":
        slots |= {"cap": float(attention.softcap or 0)}
        symbols, filled = "s′ = c × tanh(s / c)", "{cap} × tanh({x} / {cap}) = {y}"
    else:
        bias = place.spec + ".bias"
        slots |= {"bias": Slot("number", f"{bias}[h p k]")}
        symbols, filled = "s′ = s + b(k − p)", "{x} + {bias} = {y}"
        views.insert(0, View(kind="grid", label="bias", at=f"{bias}[h * *]", sets="p k"))
    return Step(
        name={"products": "scores"}.get(kind, kind),
        title={"products": "scores"}.get(kind, kind) + "_title",
        says=({"products": "scores"}.get(kind, kind) + "_says",),
        found=("score_found",),
        formulas=(Formula(symbols=symbols, filled=filled, slots=slots),),
        views=tuple(views),
        slots={
            "token": Slot("token", "p"),
            "other": Slot("token", "k"),
            "score": Slot("number", f"{at}[h p k]"),
            "d_head": attention.d_head,
            "scale": attention.scale,
            "cap": float(attention.softcap or 0),
        },
        check=check,
        **shared,
    )


def _masked(place: Place, scores_name: str, scores: Tensor, allowed: Tensor, rule: str, shared: dict) -> Step:
    masked = place.keep("masked", scores.masked_fill(~allowed, float("-inf")))
    seen = place.keep("allowed", allowed.float())
    everything = bool(allowed.all())
    return Step(
        name="mask",
        title="mask_title",
        says=("mask_all_says" if everything else "mask_says",),
        found=("mask_found",),
        formulas=(
            Formula(
                symbols="s′ = s" if everything else f"s′ = −∞  ⇐  {rule}",
                filled="{x} → {y}",
                slots={"x": Slot("number", f"{scores_name}[h p k]"), "y": Slot("number", f"{masked}[h p k]")},
            ),
        ),
        views=(View(kind="grid", label="masked", at=f"{masked}[h * *]", sets="p k", more={"seen": f"{seen}[* *]"}),),
        slots={
            "token": Slot("token", "p"),
            "p": Slot("index", "p"),
            "unseen": Slot("unseen", f"{seen}[p *]"),
        },
        **shared,
    )


def _pattern(place: Place, attention: Attention, scores: Tensor, allowed: Tensor, shared: dict) -> Step:
    pattern_name, pattern = place.show("pattern")
    masked = scores.masked_fill(~allowed, float("-inf"))
    sinks = None if attention.sinks is None else wide(attention.sinks.detach())[:, None, None]
    every = masked if sinks is None else torch.cat((masked, sinks.expand(-1, masked.shape[1], 1)), -1)
    largest = every.amax(-1)
    powers = (every - largest[..., None]).exp()
    total = powers.sum(-1)
    told = powers[..., : masked.shape[-1]] / total[..., None]
    slots = {
        "score": Slot("number", f"{place.spec}.masked[h p k]"),
        "largest": Slot("number", place.keep("largest", largest) + "[h p]"),
        "total": Slot("number", place.keep("total", total) + "[h p]"),
        "share": Slot("number", f"{pattern_name}[h p k]"),
        "percent": Slot("percent", f"{pattern_name}[h p k]"),
    }
    return Step(
        name="pattern",
        title="pattern_title",
        says=("pattern_says", *(("sinks_says",) if sinks is not None else ())),
        found=("pattern_found",),
        formulas=(
            Formula(
                symbols="α = e^(s − max) / Σ e^(s − max)",
                filled="e^({score} − {largest}) / {total} = {share} = {percent}",
                slots=slots,
            ),
        ),
        views=(
            View(
                kind="grid",
                label="pattern",
                at=f"{pattern_name}[h * *]",
                sets="p k",
                scale="share",
                more={"seen": f"{place.spec}.allowed[* *]"},
            ),
        ),
        slots={
            "token": Slot("token", "p"),
            "head": Slot("index", "h"),
            "most": Slot("most_token", f"{pattern_name}[h p *]"),
            "share": Slot("most_percent", f"{pattern_name}[h p *]"),
        },
        check=place.check("told.pattern", told, pattern),
        **shared,
    )


def _mix(place: Place, attention: Attention, shared: dict) -> Step:
    mix_name, mix = place.show("mix")
    pattern, values = place.seen("pattern"), place.seen("values")
    told = pattern @ values.repeat_interleave(attention.group, dim=0)
    of = pattern.shape[-1]
    products = Sum(left=f"{place.spec}.pattern[h p *]", right=f"{place.spec}.values[g * e]", of=of)
    return Step(
        name="mix",
        title="mix_title",
        says=("mix_says",),
        found=("mix_found",),
        formulas=(
            Formula(
                symbols="m = Σ α × v",
                filled="{sum} = {y}",
                slots={"sum": products, "y": Slot("number", f"{mix_name}[h p e]")},
            ),
        ),
        views=(
            View(
                kind="rows",
                label="values_by_token",
                at=f"{place.spec}.values[g * *]",
                sets="k e",
                more={"shares": f"{place.spec}.pattern[h p *]"},
            ),
            View(kind="vector", label="mix", at=f"{mix_name}[h p *]", sets="e"),
        ),
        slots={
            "token": Slot("token", "p"),
            "head": Slot("index", "h"),
            "most": Slot("most_token", f"{place.spec}.pattern[h p *]"),
            "share": Slot("most_percent", f"{place.spec}.pattern[h p *]"),
            "size": Slot("size", f"{mix_name}[h p *]"),
        },
        check=place.check("told.mix", told, mix),
        **shared,
    )
