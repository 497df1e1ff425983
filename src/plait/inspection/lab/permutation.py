"""P1: attention without positions does not know order; a causal mask alone brings some of it back."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.inspection.lab.experiment import Experiment, Finding, Result, number
from plait.inspection.lab.figures import Lines, Matrix, Series
from plait.inspection.lab.making import drawn, one_row
from plait.model import Transformer, watching
from plait.pages.words import Words

WORDS = Words.of("plait.inspection.lab", "permutation")
LAYERS, TOKENS = 6, 5
DOG, BITES, MAN = 0, 1, 2
EXACT, SEEN = 1e-12, 1e-3  # up to here two float64 values are equal, from here they differ


@torch.no_grad()
def run(trials: Mapping[str, Any]) -> Result:
    """An encoder and a decoder without positions read the same tokens in other orders."""
    encoder, decoder = (model(kind) for kind in ("encoder", "decoder"))
    dog, man = (scores(encoder, order) for order in ((DOG, BITES, MAN), (MAN, BITES, DOG)))
    apart = float((dog - man.flip(-1, -2)).abs().max())
    lines = {name: moved(one) for name, one in (("encoder", encoder), ("decoder", decoder))}
    findings = (
        equal("P1", "permuted", furthest(encoder), True),
        equal("P1", "scores", apart, True),
        equal("P1", "masked", furthest(decoder), False),
        Finding(
            id="W5",
            what=WORDS["circulates"],
            claimed=WORDS.say("by", distance="0"),
            measured=WORDS.say("by", distance=number(lines["decoder"][-1])),
            holds=lines["decoder"][-1] <= EXACT,
            values=tuple(lines["decoder"]),
        ),
    )
    names = ("dog", "bites", "man")
    pictures = (
        Lines(
            title=WORDS["figure"],
            across=WORDS["layers"],
            series=tuple(
                Series(name=WORDS[name], points=tuple(enumerate(values, 1))) for name, values in lines.items()
            ),
            log=False,
        ),
        Matrix(title=WORDS["first"], rows=names, columns=names, values=rounded(dog), digits=3),
        Matrix(title=WORDS["second"], rows=names[::-1], columns=names[::-1], values=rounded(man), digits=3),
    )
    return Result(findings=findings, figures=pictures)


def model(kind: str) -> Transformer:
    """Six layers without positions, freshly drawn."""
    return drawn(
        Architecture(
            vocab_size=8,
            d_model=32,
            n_heads=4,
            d_ff=64,
            head=None,
            n_encoder_layers=LAYERS if kind == "encoder" else 0,
            n_decoder_layers=LAYERS if kind == "decoder" else 0,
        )
    )


def furthest(model: Transformer) -> float:
    """How far the outputs of permuted tokens are from the permuted outputs, over all orders of five tokens."""
    tokens = torch.arange(TOKENS)
    states = model(tokens[None])[0]
    orders = torch.tensor(list(permutations(range(TOKENS))))
    return float((model(tokens[orders]) - states[orders]).abs().max())


def scores(model: Transformer, words: tuple[int, ...]) -> Tensor:
    """Query times key for every pair of words ``(3, 3)``, in the first head of the first layer."""
    site = "encoder.layers.0.attention.scores"
    with watching(model, site, stop_after=site) as seen:
        model(one_row(words))
    return seen[site][0, 0]


def moved(model: Transformer) -> list[float]:
    """How far the last word's state moves, layer by layer, where the two words before it change places."""
    tower = "encoder" if model.decoder is None else "decoder"
    found: list[dict[str, Tensor]] = []
    for words in ((DOG, BITES, MAN), (BITES, DOG, MAN)):
        with watching(model, f"{tower}.layers.*.output") as seen:
            model(one_row(words))
        found.append(dict(seen))
    return [float((found[0][name] - found[1][name])[0, -1].abs().max()) for name in found[0]]


def equal(id: str, key: str, distance: float, claimed: bool) -> Finding:
    """Whether two values are one."""
    return Finding(
        id=id,
        what=WORDS[key],
        claimed=WORDS["equal" if claimed else "not_equal"],
        measured=WORDS.say("by", distance=number(distance)),
        holds=distance <= EXACT if claimed else distance > SEEN,
        values=(distance,),
    )


def rounded(field: Tensor) -> tuple[tuple[float, ...], ...]:
    """Rows of numbers."""
    return tuple(tuple(row) for row in field.tolist())


EXPERIMENT = Experiment(name="permutation", words=WORDS, run=run)
