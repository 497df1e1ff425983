"""Probes: whether a property can be read off inner values by a linear map (Alain and Bengio 2017), beside the same map
taught labels that were dealt out by chance (Hewitt and Liang 2019): what that reaches too says nothing.

Legend: n samples, w width, c classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.inspection.errors import InspectionError


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """``weight`` ``(c, w)`` and ``bias`` ``(c,)`` of a linear classifier; ``accuracy`` on samples it was not taught,
    ``control`` that of one taught shuffled labels, ``majority`` the share of the most frequent class."""

    weight: Tensor
    bias: Tensor
    accuracy: float
    control: float
    majority: float


def probe(features: Tensor, labels: Tensor, *, held_out: float = 0.3, penalty: float = 1e-3, seed: int = 0) -> Probe:
    """Logistic regression from values to classes.

    Args:
        features: ``(n, w)``; each column is brought to mean 0 and variance 1 for learning.
        labels: ``(n,)`` integers from 0.
        held_out: the share of samples that the accuracy is taken on.
        penalty: weight of half the squared norm of the weights.
        seed: of the split and the shuffled labels.

    Raises ``InspectionError`` for too few samples, and labels of one class.
    """
    n, classes = len(features), int(labels.max()) + 1 if len(labels) else 0
    kept = round(n * held_out)
    if len(labels) != n or kept < 1 or n - kept < 2:
        raise InspectionError(
            f"labels: {len(labels)} for {n} samples; a probe needs a label for each, and some to keep."
        )
    if classes < 2:
        raise InspectionError("labels: all are of one class; there is nothing to tell apart.")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator)
    shuffled = labels[torch.randperm(n, generator=generator)]
    taught, asked = order[kept:], order[:kept]
    wide = features.detach().to(torch.promote_types(features.dtype, torch.float32))
    mean, deviation = wide[taught].mean(0), wide[taught].std(0).clamp(min=1e-6)
    scaled = (wide - mean) / deviation

    def accuracy(given: Tensor) -> tuple[Tensor, Tensor, float]:
        weight, bias = _fitted(scaled[taught], given[taught], classes, penalty)
        right = (F.linear(scaled[asked], weight, bias).argmax(-1) == given[asked]).double().mean()
        return weight, bias, float(right)

    weight, bias, right = accuracy(labels)
    weight = weight / deviation
    return Probe(
        weight=weight,
        bias=bias - weight @ mean,
        accuracy=right,
        control=accuracy(shuffled)[2],
        majority=float(labels[asked].bincount(minlength=classes).max()) / kept,
    )


def _fitted(x: Tensor, labels: Tensor, classes: int, penalty: float) -> tuple[Tensor, Tensor]:
    weight = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(F.linear(x, weight, bias), labels) + 0.5 * penalty * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    return weight.detach(), bias.detach()
