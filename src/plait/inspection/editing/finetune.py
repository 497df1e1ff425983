"""Constrained fine-tuning: the baseline of editing: gradient descent on one layer's values, none of which may move
further than a little (Zhu et al. 2020, eq. 5; "FT+L" of Meng et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from plait.checkpoint import Checkpoint
from plait.inspection.editing.facts import Fact
from plait.inspection.editing.places import Place
from plait.inspection.editing.prompts import rows_of


def fine_tune(
    checkpoint: Checkpoint,
    facts: Sequence[Fact],
    place: Place,
    *,
    steps: int = 25,
    lr: float = 5e-4,
    most: float = 1e-3,
    enough: float = 0.95,
) -> dict[str, Tensor]:
    """The new weights by name.

    Args:
        steps: of Adam at ``lr``, over all facts at once.
        most: how far each weight may move.
        enough: it ends early once every target's probability is over this.
    """
    model = checkpoint.model.eval()
    own = place.weight(model).detach()
    weight = own.float().clone().requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=lr)
    rows = [rows_of(checkpoint, fact, [""]) for fact in facts]
    for _ in range(steps):
        optimizer.zero_grad()
        least = 1.0
        for row in rows:
            with torch.enable_grad():
                changed = {place.parameter: weight.to(own.dtype)}
                logits = functional_call(model, changed, (row.tokens,), {"mask": row.mask}).float()
                nll = F.cross_entropy(logits.flatten(0, 1), row.targets.flatten(), ignore_index=-100)
                (nll / len(rows)).backward()
            least = min(least, float((-nll.detach()).exp()))
        if least > enough:
            break
        optimizer.step()
        with torch.no_grad():
            weight.copy_(torch.minimum(torch.maximum(weight, own - most), own + most))
    return {place.parameter: weight.detach().to(own.dtype)}
