"""Packed: the neurons of a study as compact data: numbers in base64, one vocabulary and excerpt for each tower.

What does not fit the page is left out step by step: tokens of values, triggers, then the weakest neurons.

Legend: m neurons of a network, t triggers, k tokens of a value.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from plait.inspection.memory import Neurons, Study
from plait.studio.memories.excerpt import Excerpt

LIMIT = 25_000_000  # bytes of a page
FEWER = ((5, 8), (5, 5), (3, 3))  # triggers and tokens of a value that there is less and less room for


@dataclass(frozen=True, kw_only=True)
class Packed:
    """``data`` for the script, and what of the study is in it: triggers and tokens of each neuron, and neurons of each
    network; of all where ``whole``."""

    data: dict[str, Any]
    triggers: int
    tokens: int
    neurons: int
    whole: bool


def packed(study: Study, *, neurons: int | None = None, limit: int = LIMIT) -> Packed:
    """As much as fits.

    Args:
        neurons: of each network, at most, those that add most; none: as many as there is room for.
        limit: bytes.
    """
    networks = [one for layer in study.layers for one in layer.networks]
    largest, k = max(map(len, networks)), max(one.raised.shape[1] for one in networks)
    most = largest if neurons is None else min(neurons, largest)
    for triggers, tokens, some in _steps(study.keep, k, most):
        data = _data(study, triggers, tokens, some)
        if _size(data) <= limit or some == 1:
            whole = (triggers, tokens, some) == (study.keep, k, largest)
            return Packed(data=data, triggers=triggers, tokens=tokens, neurons=some, whole=whole)
    raise AssertionError("the last step is always taken")


def _steps(keep: int, k: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Triggers, tokens and neurons: from all that there is to very little."""
    yield keep, k, most
    for triggers, tokens in FEWER:
        yield min(triggers, keep), min(tokens, k), most
    while most > 1:
        most = max(1, most * 2 // 3)
        yield min(FEWER[-1][0], keep), min(FEWER[-1][1], k), most


def _data(study: Study, triggers: int, tokens: int, neurons: int) -> dict[str, Any]:
    chosen = [(layer, one, _chosen(one, neurons)) for layer in study.layers for one in layer.networks]
    excerpts: dict[str, Excerpt] = {}
    for tower in study.readers:
        own = [(one, rows) for layer, one, rows in chosen if layer.tower == tower]
        places = np.concatenate([_numbers(one.triggers.places[rows, :triggers]).ravel() for one, rows in own])
        said = [_numbers(ids[rows, :tokens]).ravel() for one, rows in own for ids in (one.raised, one.lowered)]
        excerpts[tower] = Excerpt.of(study.corpus.lanes[tower], places, np.concatenate(said))
    return {
        "keep": study.keep,
        "lanes": {
            tower: {
                "vocabulary": excerpt.vocabulary(study.corpus.lanes[tower].tokenizer),
                "tokens": _packed(excerpt.tokens, "u4"),
                "following": study.corpus.lanes[tower].following,
                "rows": len(study.readers[tower].table),
            }
            for tower, excerpt in excerpts.items()
        },
        "networks": [
            _network(one, rows, excerpts[layer.tower], triggers, tokens, layer.n_neurons)
            for layer, one, rows in chosen
            if len(rows)
        ],
    }


def _network(one: Neurons, rows: Tensor, excerpt: Excerpt, triggers: int, tokens: int, of: int) -> dict[str, Any]:
    found = one.triggers
    return {
        "tower": one.tower,
        "turn": one.turn,
        "part": one.name.partition(".ffn")[2].removeprefix("."),
        "triggers": min(triggers, found.places.shape[1]),
        "tokens": min(tokens, one.raised.shape[1]),
        "numbers": _packed(_numbers(rows), "u4"),
        "places": _packed(excerpt.place(_numbers(found.places[rows, :triggers])), "u4"),
        "strengths": _packed(found.strengths[rows, :triggers].numpy(), "f4"),
        "raised": _packed(excerpt.number(_numbers(one.raised[rows, :tokens])), "u4"),
        "pushes": _packed(_tenths(one.pushes[rows, :tokens]), "u2"),
        "lowered": _packed(excerpt.number(_numbers(one.lowered[rows, :tokens])), "u4"),
        "pulls": _packed(_tenths(one.pulls[rows, :tokens]), "u2"),
        "ranks": _packed(_numbers(one.ranks[rows]), "u4"),
        "added": _packed(one.added[rows].numpy(), "f4"),
        "agrees": _packed(_numbers(one.agrees[rows].sum(1)), "u2"),
        "of": of,
    }


def _chosen(one: Neurons, neurons: int) -> Tensor:
    """Those that add most, by number."""
    order = one.added.argsort(descending=True, stable=True)[:neurons]
    return order.sort().values


def _numbers(x: Tensor) -> NDArray[np.int64]:
    return x.long().numpy()


def _tenths(x: Tensor) -> NDArray[np.int64]:
    return (x.clamp(0, 6000) * 10).round().long().numpy()


def _packed(x: NDArray[Any], type: str) -> str:
    """In base64, little-endian; whole numbers in two bytes where those do."""
    if type == "u4" and (not x.size or int(x.max()) < 1 << 16):
        return "2" + base64.b64encode(np.ascontiguousarray(x, "<u2").tobytes()).decode()
    code = {"u4": "4", "u2": "2", "f4": "f"}[type]
    return code + base64.b64encode(np.ascontiguousarray(x, f"<{type}").tobytes()).decode()


def _size(data: dict[str, Any]) -> int:
    """About how many bytes the data takes in a page."""
    texts = sum(len(value) for network in data["networks"] for value in network.values() if isinstance(value, str))
    for lane in data["lanes"].values():
        texts += len(lane["tokens"]) + sum(len(word) * 4 + 4 for word in lane["vocabulary"])
    return texts
