"""Edit: facts into a checkpoint by one of three methods, or one neuron's value towards a token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from plait.checkpoint import Checkpoint
from plait.data.progress import counted
from plait.inspection.editing.covariance import covariance
from plait.inspection.editing.facts import Fact, tokenizer_of
from plait.inspection.editing.finetune import fine_tune
from plait.inspection.editing.memit import memit
from plait.inspection.editing.places import edited, place
from plait.inspection.editing.prompts import beginnings
from plait.inspection.editing.record import Edit, described
from plait.inspection.editing.rome import rome
from plait.inspection.errors import InspectionError
from plait.inspection.memory.reading import table_of

Method = Literal["rome", "memit", "finetune"]


def edit(
    checkpoint: Checkpoint,
    facts: Fact | Sequence[Fact],
    *,
    method: Method = "rome",
    layers: Sequence[int] | None = None,
    corpus: str | Path | list[str] | None = None,
    tokens: int = 100_000,
    seed: int = 0,
    cache: Path | None = None,
) -> Edit:
    """The checkpoint with some facts changed; the one given stays as it is.

    Args:
        method: ``rome`` one fact after the other, each by a change of rank one; ``memit`` all at once; ``finetune``
            all at once by gradient descent with a bound.
        layers: of the decoder; none: one, a third of the way up; for ``memit`` the four that end there.
        corpus: text over which the keys of a layer are spread, for ``rome`` and ``memit``; ``tokens`` of it are read.
        seed: of the beginnings that the model writes before the prompts.
        cache: where statistics are kept, instead of the user's cache.

    Raises ``InspectionError`` for models that are no decoder's, layers that there are not, and a method without its
    corpus.
    """
    tokenizer_of(checkpoint)
    facts = [facts] if isinstance(facts, Fact) else list(facts)
    if not facts:
        raise InspectionError("facts: none is given; give one, at least.")
    chosen = list(layers) if layers is not None else usual(checkpoint, method)
    if method != "memit" and len(chosen) != 1:
        raise InspectionError(f"layers: {method} changes one; memit spreads facts over several.")
    places = [place(checkpoint.model, layer) for layer in sorted(chosen)]
    new = checkpoint
    if method == "finetune":
        new = edited(checkpoint, fine_tune(checkpoint, facts, places[0]))
    elif corpus is None:
        raise InspectionError(f"corpus: {method} must know how keys are spread over a text; give one.")
    else:
        spreads = [covariance(checkpoint, one, corpus, tokens=tokens, cache=cache) for one in places]
        before = beginnings(checkpoint, seed=seed)
        if method == "memit":
            new = edited(checkpoint, memit(checkpoint, facts, places, spreads, before))
        else:
            with counted("facts", len(facts)) as advance:
                for fact in facts:
                    new = edited(new, rome(new, fact, places[0], spreads[0], before))
                    advance(1)
    kept = {one.parameter: one.weight(checkpoint.model).detach().clone() for one in places}
    return Edit(checkpoint=new, before=kept, said=described(method, facts, sorted(chosen)))


def usual(checkpoint: Checkpoint, method: Method) -> list[int]:
    """The layers that are changed where none is said."""
    last = checkpoint.architecture.n_decoder_layers // 3
    return list(range(max(0, last - 3), last + 1)) if method == "memit" else [last]


@torch.no_grad()
def promote(checkpoint: Checkpoint, layer: int, neuron: int, token: int, strength: float = 10.0) -> Edit:
    """The checkpoint with one neuron's value moved towards a token: whenever it fires by 1, the token's logit, as the
    value is read through the unembedding, is ``strength`` more.

    Raises ``InspectionError`` for a neuron or a token that there is not.
    """
    where = place(checkpoint.model, layer)
    weight = where.weight(checkpoint.model).detach()
    if not 0 <= neuron < weight.shape[1]:
        raise InspectionError(f"neuron: {neuron}, and layer {layer} has neurons 0 to {weight.shape[1] - 1}.")
    table = table_of(checkpoint.model, "decoder")
    if not 0 <= token < len(table):
        raise InspectionError(f"token: {token}, and there are tokens 0 to {len(table) - 1}.")
    direction = table[token].float()
    new = weight.clone()
    new[:, neuron] += (strength * direction / direction.square().sum()).to(weight.dtype)
    said = {"method": "promote", "layers": [layer], "neuron": neuron, "token": token, "strength": strength, "facts": []}
    return Edit(
        checkpoint=edited(checkpoint, {where.parameter: new}), before={where.parameter: weight.clone()}, said=said
    )
