"""The loss of a batch: a sum over its real targets, and their number, so that steps are divided once, by all of them.

Legend: b rows, n tokens, r real targets, v outputs, w width.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.architecture import Pooling
from plait.data.batch import UNCOUNTED, Batch
from plait.model import Transformer, pool, watching
from plait.model.experts import balance_loss
from plait.model.sites import site_names
from plait.training.output_loss import Output, output_loss


def batch_loss(
    model: Transformer,
    batch: Batch,
    *,
    smoothing: float = 0.0,
    z_loss: float = 0.0,
    temperature: float = 0.05,
    pooling: Pooling = "mean",
    balance: float = 0.0,
    among: Tensor | None = None,
) -> tuple[Tensor, int]:
    """The sum of losses over the real targets, at least float32, and their number.

    Against the vocabulary or classes it is cross-entropy, against values the squared error, against rows the
    cross-entropy of which row is the nearest by cosine (NT-Xent, Chen et al. 2020).

    Args:
        smoothing: the share of a target's weight that all outputs divide among them.
        z_loss: what multiplies the squared logarithm of the softmax's denominator, added to each target's loss.
        temperature: divides cosines, against rows.
        pooling: of hidden states to one vector a row, against rows.
        balance: what multiplies the experts' balance loss (Fedus et al. 2022), the mean of all layers, added for each
            target; the balance is that of this batch.
        among: sorted numbers of the tokens that can be targets: the softmax is over these alone, as if all other
            logits were -inf. That is another, smaller model of the target side and its exact gradient: of the output's
            rows the others get none, and are to be banned when the model speaks.

    Raises ``ValueError`` where the model's head does not answer what the batch asks.
    """
    _check(model, batch)
    with ExitStack() as stack:
        seen = stack.enter_context(_routing(model)) if balance else None
        if batch.against == "rows":
            total = _against_rows(model, batch, temperature, pooling)
        elif batch.against == "values":
            total = _wide(model(batch.tokens, **batch.inputs)).sub(batch.targets).square().sum()
        else:
            total = _against_outputs(model, batch, smoothing, z_loss, among)
    count = int(batch.real.sum())
    return (total if seen is None else total + balance * count * _balance(seen, batch)), count


def _check(model: Transformer, batch: Batch) -> None:
    head = model.architecture.head
    fits = {"vocabulary": isinstance(head, str), "rows": head is None}
    if not fits.get(batch.against, head is not None and not isinstance(head, str)):
        raise ValueError(f"head: {head!r} does not answer a batch with targets of {batch.against}.")


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _against_outputs(model: Transformer, batch: Batch, smoothing: float, z_loss: float, among: Tensor | None) -> Tensor:
    """Cross-entropy over the vocabulary or classes, of the places that have a target."""
    assert model.head is not None
    head, places = model.head, batch.real.flatten().nonzero()[:, 0]
    states = model.states(batch.tokens, **batch.inputs)
    if head.pooling is None:
        x = head.features(_rows(states.flatten(0, 1), places), None)  # r w
    else:
        x = _rows(head.features(states, None if batch.mask is None else batch.mask > 0), places)
    targets = batch.targets.flatten()[places]
    weight = head.output.weight if head.output.weight is not None else model.embedding.tokens.weight  # pyright: ignore
    bias = head.output.bias
    if among is not None:
        among = among.to(targets.device)
        weight, bias = weight[among], None if bias is None else bias[among]
        numbers = torch.searchsorted(among, targets).clamp(max=len(among) - 1)
        if not torch.equal(among[numbers], targets):
            raise ValueError("among: a target of this batch is not among the tokens that can be targets.")
        targets = numbers
    return output_loss(x, weight, bias, targets, Output(head.scale, head.softcap, smoothing, z_loss))


def _rows(x: Tensor, places: Tensor) -> Tensor:
    """These rows of ``x``. A table's look-up has the fastest gradient of all that pick rows."""
    return x if len(places) == len(x) else F.embedding(places, x)


def _against_rows(model: Transformer, batch: Batch, temperature: float, pooling: Pooling) -> Tensor:
    """Every row's vector against all others': the nearest should be the row its target names."""
    states = model.states(batch.tokens, **batch.inputs)
    vectors = F.normalize(_wide(pool(states, None if batch.mask is None else batch.mask > 0, pooling)), dim=-1)
    scores = (vectors @ vectors.T / temperature).fill_diagonal_(float("-inf"))  # a row is not its own neighbour
    return F.cross_entropy(scores, batch.targets, ignore_index=UNCOUNTED, reduction="sum")


def _routing(model: Transformer) -> Any:
    names = [name for name in site_names(model) if name.endswith((".router.scores", ".routes"))]
    if not names:
        raise ValueError("balance: the model has no experts whose work could be balanced; leave it at 0.")
    return watching(model, *names, gradients=True)


def _balance(seen: watching, batch: Batch) -> Tensor:
    """The mean of all layers' balance losses."""
    losses: list[Tensor] = []
    for name in seen:
        if name.endswith(".routes"):
            mask = batch.source_mask if batch.source is not None and name.startswith("encoder.") else batch.mask
            scores = seen[name.removesuffix("routes") + "router.scores"]
            losses.append(balance_loss(scores, seen[name], None if mask is None else mask > 0))
    return torch.stack(losses).mean()
