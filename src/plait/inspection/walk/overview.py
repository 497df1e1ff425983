"""The step that looks back over all layers: how large the stream became, what was added, and what it would say.

Legend: l layers, n tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plait.inspection.lens import lens
from plait.inspection.walk.place import Place, named
from plait.inspection.walk.step import Filling, Slot, Step, View
from plait.text import Tokenizer


def layers_step(place: Place, embedded: Tensor, n_layers: int, writer: Tokenizer | None) -> Step:
    """Args:
    embedded: what the first layer read, ``(n, d_model)``.
    writer: the tokenizer of what the stream could say, where this tower's stream says anything.
    """
    layers = [place.within(f"layers.{turn}") for turn in range(n_layers)]
    streams = [embedded, *(layer.seen("output") for layer in layers)]
    more = {"stream": place.keep("sizes", torch.stack([one.norm(dim=-1) for one in streams])) + "[* p]"}
    for part in ("attention", "cross", "ffn"):
        if f"{place.path}.layers.0.{part}_branch" in place.trace:
            added = torch.stack([layer.seen(f"{part}_branch").norm(dim=-1) for layer in layers])
            more[part] = place.keep(f"sizes.{part}", added) + "[* p]"
    if _speaks(place):
        more |= _said(place, writer)
    slots: dict[str, Filling] = {
        "token": Slot("token", "p"),
        "layers": n_layers,
        "first": Slot("number", f"{place.spec}.sizes[0 p]"),
        "last": Slot("number", f"{place.spec}.sizes[{n_layers} p]"),
    }
    return Step(
        name="layers",
        title="layers_title",
        says=("layers_says", *(("lens_says",) if "says" in more else ())),
        found=("layers_found",),
        views=(View(kind="layers", more=more),),
        slots=slots,
        lane="stream",
    )


def _speaks(place: Place) -> bool:
    """Whether the stream of this tower is read by a head over the vocabulary, token by token."""
    return place.path == place.trace.tower and place.trace.model.architecture.head in ("language", "masked")


def _said(place: Place, writer: Tokenizer | None) -> dict[str, str]:
    words, shares = list[list[str]](), list[Tensor]()
    for _, logits in lens(place.trace):
        best = logits.float().softmax(-1).max(-1)
        words.append(named(best.indices.tolist(), writer))
        shares.append(best.values)
    return {
        "says": place.say("lens", words) + "[* p]",
        "share": place.keep("lens.share", torch.stack(shares)) + "[* p]",
    }
