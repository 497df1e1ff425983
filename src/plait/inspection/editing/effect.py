"""Effect: what a changed neuron does to a text: where it fires, and where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.data.store import tokenised
from plait.inspection.editing.facts import tokenizer_of
from plait.inspection.editing.places import place
from plait.model import watching

FIRES, QUIET = 0.5, 0.1  # of the largest coefficient: from here on it fires, up to here it does not
LENGTH = 128


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Means over the ``count`` tokens of a text where the neuron fires, or where it does not (``where``): its
    ``coefficient``, the ``change`` of the promoted token's log-probability, and the share of ``other`` answers: of
    places where another token became the likeliest."""

    where: str
    count: int
    coefficient: float
    change: float
    other: float


@torch.no_grad()
def effect(
    before: Checkpoint,
    after: Checkpoint,
    layer: int,
    neuron: int,
    token: int,
    corpus: str | Path | list[str],
    *,
    tokens: int = 4096,
) -> Iterator[Effect]:
    """Of a change of a neuron's value, over the first ``tokens`` of a text: where it fires, then where it does not."""
    key = place(before.model, layer).key
    text = tokenised(corpus, tokenizer_of(before))
    length = min(LENGTH, before.architecture.max_length or LENGTH)
    device = next(before.model.parameters()).device
    found: list[Tensor] = []  # (3, n): coefficient, change, whether the answer is another
    for start in range(0, min(tokens, len(text)), length):
        ids = torch.from_numpy(text.read(start, min(start + length, len(text))))[None].to(device)
        new = after.model.eval()(ids)[0].float()
        with watching(before.model.eval(), key) as seen:
            old = before.model(ids)[0].float()
            change = new.log_softmax(-1)[:, token] - old.log_softmax(-1)[:, token]
            other = new.argmax(-1) != old.argmax(-1)
            found.append(torch.stack((seen[key][0, :, neuron].float(), change, other.float())))
    coefficients, change, other = torch.cat(found, 1)
    sizes = coefficients.abs() / coefficients.abs().amax().clamp(min=torch.finfo(torch.float32).tiny)
    for where, chosen in (("fires", sizes >= FIRES), ("does not", sizes <= QUIET)):
        if bool(chosen.any()):
            yield Effect(
                where=where,
                count=int(chosen.sum()),
                coefficient=float(coefficients[chosen].mean()),
                change=float(change[chosen].mean()),
                other=float(other[chosen].mean()),
            )
