"""MEMIT: many facts at once, spread over several layers (Meng et al. 2023, eq. 14 and algorithm 1).

Legend: m neurons, w width, f facts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.data.progress import counted
from plait.inspection.editing.covariance import Covariance
from plait.inspection.editing.facts import Fact
from plait.inspection.editing.places import Place, blocks_of, edited
from plait.inspection.editing.prompts import rows_of
from plait.inspection.editing.rome import key
from plait.inspection.editing.values import USUAL, Descent, wanted
from plait.inspection.errors import InspectionError
from plait.model import watching


def memit(
    checkpoint: Checkpoint,
    facts: Sequence[Fact],
    places: Sequence[Place],
    spreads: Sequence[Covariance],
    before: list[str],
    *,
    weight: float = 15_000.0,
    descent: Descent = USUAL,
) -> dict[str, Tensor]:
    """The new weights by name.

    Args:
        places: the layers, ascending; ``spreads`` is the covariance of each.
        weight: how much what the layers did before counts beside the new facts, ``lambda``.

    Raises ``InspectionError`` for several layers of a model with a norm behind each network.
    """
    last, slots = places[-1].layer, blocks_of(checkpoint.model)[places[-1].layer].ffn_norms
    if len(places) > 1 and (slots.after is not None or slots.merge is not None):
        raise InspectionError(
            "layers: a norm stands between a layer's values and the residual stream of this model, so that shares of "
            "an addition do not add up; give one layer."
        )
    deltas: list[Tensor] = []
    with counted("facts", len(facts)) as advance:
        for fact in facts:
            deltas.append(wanted(checkpoint, fact, last, before, descent).delta)
            advance(1)
    goals = [
        stream(checkpoint, fact, last) + slots.residual_scale * delta for fact, delta in zip(facts, deltas, strict=True)
    ]
    new: dict[str, Tensor] = {}
    now = checkpoint
    for number, (place, spread) in enumerate(zip(places, spreads, strict=True)):
        keys = torch.stack([key(now, fact, place, before) for fact in facts], 1)  # m f
        rest = torch.stack(deltas, 1)
        if len(places) > 1:
            left = [goal - stream(now, fact, last) for fact, goal in zip(facts, goals, strict=True)]
            rest = torch.stack(left, 1) / slots.residual_scale  # w f
        matrix = weight * spread.ridged.to(keys.device) + keys @ keys.t()
        change = torch.linalg.solve(matrix, keys).t()  # f m
        own = place.weight(now.model)
        new[place.parameter] = (own.double() + rest.double() / (len(places) - number) @ change).to(own.dtype)
        now = edited(now, {place.parameter: new[place.parameter]})
    return new


@torch.no_grad()
def stream(checkpoint: Checkpoint, fact: Fact, layer: int) -> Tensor:
    """The residual stream behind a layer at the subject's last token, ``(w,)``."""
    rows = rows_of(checkpoint, fact, [""], target=False)
    name = f"decoder.layers.{layer}.output"
    with watching(checkpoint.model.eval(), name, stop_after=name) as seen:
        checkpoint.model(rows.tokens, mask=rows.mask)
    return seen[name][0, rows.subjects[0]].float()
