"""Values: what a layer would have to add at the subject's last token for the model to say the target (Meng et al. 2022,
eq. 4), found by gradient descent on that addition alone.

Legend: b rows, n places, w width, t tokens of targets in all rows, v vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.checkpoint import Checkpoint
from plait.inspection.editing.facts import Fact
from plait.inspection.editing.places import added, blocks_of
from plait.inspection.editing.prompts import ESSENCE, Rows, rows_of, together
from plait.inspection.passes import onwards, read_out, stream_before


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How the addition is looked for.

    ``steps`` of Adam at ``lr``, of the size of what the layer gives there; ``drift`` weighs the divergence of what the
    subject is said to be, ``decay`` the square of the addition's relative size, which is at most ``largest``; it ends
    early once the target's probability is over ``enough`` behind every beginning.
    """

    steps: int = 25
    lr: float = 0.1
    drift: float = 0.0625
    decay: float = 0.05
    largest: float = 4.0
    enough: float = 0.95


USUAL = Descent()


@dataclass(frozen=True, kw_only=True, eq=False)
class Wanted:
    """``delta`` ``(w,)`` float32 beside what the network gives now; ``probability`` the target's then, without a
    beginning."""

    delta: Tensor
    probability: float


def wanted(checkpoint: Checkpoint, fact: Fact, layer: int, before: list[str], descent: Descent) -> Wanted:
    """The addition to what the feed-forward network of a layer gives that makes the model say the target."""
    model = checkpoint.model.eval()
    asked = rows_of(checkpoint, fact, before)
    essence = rows_of(checkpoint, Fact(subject=fact.subject, prompt=ESSENCE, target=fact.target), [""], target=False)
    rows = together([asked, essence])
    number = torch.arange(len(rows.tokens), device=rows.tokens.device)
    states = stream_before(model, layer, rows.tokens, rows.mask)  # nothing below the layer changes
    row, place = (rows.targets[:-1] != -100).nonzero(as_tuple=True)  # t, in order of rows
    targets, counts = rows.targets[row, place], row.bincount().float()
    last = int(essence.mask.sum()) - 1
    size = given(checkpoint, layer, rows).norm()
    delta = torch.zeros(states.shape[-1], device=states.device, requires_grad=True)
    optimizer = torch.optim.Adam([delta], lr=float(descent.lr * size / len(delta) ** 0.5))
    kept: Tensor | None = None  # what the subject was said to be
    probability = 0.0
    for step in range(descent.steps + 1):
        with torch.enable_grad(), added(model, layer, number, rows.subjects, delta):
            hidden = onwards(model, states, layer, rows.mask)
            logits = read_out(model, torch.cat((hidden[row, place], hidden[-1, last][None]))).float()  # t + 1, v
        said = logits[-1].log_softmax(-1)
        if kept is None:
            kept = said.detach()
        losses = F.cross_entropy(logits[:-1], targets, reduction="none")
        nll = losses.new_zeros(len(counts)).index_add(0, row, losses) / counts  # b
        likely = (-nll.detach()).exp()
        probability = float(likely[0])
        if step == descent.steps or bool((likely > descent.enough).all()):
            break
        drift = (kept.exp() * (kept - said)).sum()
        loss = nll.mean() + descent.drift * drift + descent.decay * (delta.norm() / size) ** 2
        (delta.grad,) = torch.autograd.grad(loss, delta)  # and none of the weights, which stay
        optimizer.step()
        with torch.no_grad():
            most = descent.largest * size
            if delta.norm() > most:
                delta.mul_(most / delta.norm())
    return Wanted(delta=delta.detach(), probability=probability)


@torch.no_grad()
def given(checkpoint: Checkpoint, layer: int, rows: Rows) -> Tensor:
    """What the feed-forward network of a layer gives at the subject's end of the first row, ``(w,)`` float32."""
    found: list[Tensor] = []
    handle = blocks_of(checkpoint.model)[layer].ffn.register_forward_hook(
        lambda _, __, output: found.append(output[0, rows.subjects[0]])
    )
    try:
        checkpoint.model(rows.tokens[:1], mask=rows.mask[:1])
    finally:
        handle.remove()
    return found[0].float()
