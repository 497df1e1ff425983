"""Constrained fine-tuning: the baseline of editing: gradient descent on one layer's values, none of which may move
further than a little (Zhu et al. 2020, eq. 5; "FT+L" of Meng et al. 2022).

Legend: t tokens of targets, v vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.checkpoint import Checkpoint
from plait.inspection.editing.facts import Fact
from plait.inspection.editing.places import Place
from plait.inspection.editing.prompts import Rows, rows_of, together
from plait.inspection.passes import onwards, read_out, stream_before

ROWS = 32  # that are computed together


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """``steps`` of Adam at ``lr``, over all facts at once, while no weight moves further than ``most``; it ends early
    once every target's probability is over ``enough``."""

    steps: int = 25
    lr: float = 5e-4
    most: float = 1e-3
    enough: float = 0.95


def fine_tune(
    checkpoint: Checkpoint, facts: Sequence[Fact], place: Place, bounds: Bounds = Bounds()
) -> dict[str, Tensor]:
    """The new weights by name."""
    model = checkpoint.model.eval()
    own = place.weight(model).detach()
    weight = own.float().clone().requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=bounds.lr)
    batches: list[tuple[Rows, Tensor]] = []
    for start in range(0, len(facts), ROWS):
        rows = together([rows_of(checkpoint, fact, [""]) for fact in facts[start : start + ROWS]])
        batches.append((rows, stream_before(model, place.layer, rows.tokens, rows.mask)))
    for _ in range(bounds.steps):
        least, slope = 1.0, torch.zeros_like(weight)
        for rows, states in batches:
            row, at = (rows.targets != -100).nonzero(as_tuple=True)  # t
            with torch.enable_grad():
                weights = {place.parameter: weight.to(own.dtype)}
                hidden = onwards(model, states, place.layer, rows.mask, weights=weights)
                losses = F.cross_entropy(
                    read_out(model, hidden[row, at]).float(), rows.targets[row, at], reduction="none"
                )
                counts = row.bincount().float()
                nll = losses.new_zeros(len(counts)).index_add(0, row, losses) / counts
                slope += torch.autograd.grad(nll.sum() / len(facts), weight)[0]  # and of no other weights
            least = min(least, float((-nll.detach()).exp().min()))
        if least > bounds.enough:
            break
        weight.grad = slope
        optimizer.step()
        with torch.no_grad():
            weight.copy_(torch.minimum(torch.maximum(weight, own - bounds.most), own + bounds.most))
    return {place.parameter: weight.detach().to(own.dtype)}
