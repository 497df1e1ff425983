"""ROME: one fact written into one matrix as a change of rank one (Meng et al. 2022, eq. 2).

W' = W + (v* - W k) u^T / (u . k),   u = C^-1 k*

k* is the mean of the subject's keys behind several beginnings, k that of the prompt alone, where v* was looked for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.inspection.editing.covariance import Covariance
from plait.inspection.editing.facts import Fact
from plait.inspection.editing.places import Place
from plait.inspection.editing.prompts import rows_of
from plait.inspection.editing.values import USUAL, Descent, wanted
from plait.model import watching


@torch.no_grad()
def key(checkpoint: Checkpoint, fact: Fact, place: Place, before: list[str]) -> Tensor:
    """What fires the values of a layer at the subject's last token, the mean over beginnings: ``(m,)`` float64."""
    rows = rows_of(checkpoint, fact, before, target=False)
    with watching(checkpoint.model.eval(), place.key, stop_after=place.key) as seen:
        checkpoint.model(rows.tokens, mask=rows.mask)
    return seen[place.key][torch.arange(len(rows.tokens)), rows.subjects].double().mean(0)


def rome(
    checkpoint: Checkpoint,
    fact: Fact,
    place: Place,
    spread: Covariance,
    before: list[str],
    descent: Descent = USUAL,
) -> dict[str, Tensor]:
    """The new weights by name."""
    delta = wanted(checkpoint, fact, place.layer, before, descent).delta.double()
    u = spread.solve(key(checkpoint, fact, place, before)[:, None])[:, 0]
    weight = place.weight(checkpoint.model)
    change = torch.outer(delta, u / (u @ key(checkpoint, fact, place, [""])))
    return {place.parameter: (weight.double() + change).to(weight.dtype)}
