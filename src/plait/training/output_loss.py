"""The last projection and its cross-entropy in one: a few rows' logits at a time, their gradient made at once.

Legend: r rows, v outputs (the vocabulary, or classes), w width, c rows of a chunk. Logits lie as (v, c): the product
``W x^T`` is half again as fast as ``x W^T`` where there are many outputs.

    y = cap(scale * (x W^T + bias)),  lse = log sum exp y
    loss = lse - (1 - s) y_target - s mean(y) + z lse^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plait.engine import kernels, learn

CHUNK = 1 << 21  # logits that are held at once, where that makes at least LEAST rows
LEAST = 128


@dataclass(frozen=True)
class Output:
    """What makes logits of rows besides weight and bias, and the loss of logits (label smoothing as in Szegedy et al.
    2016, over all v outputs; z-loss as in Chowdhery et al. 2022)."""

    scale: float = 1.0
    softcap: float | None = None
    smoothing: float = 0.0
    z_loss: float = 0.0


def output_loss(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, output: Output) -> Tensor:
    """The sum of losses of ``(r, w)`` rows against ``(r,)`` targets, in float32 or wider; never ``(r, v)`` logits.

    Products are taken in autocast's type where that is on. Gradients reach ``x``, ``weight`` and ``bias``.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device):
        half = torch.get_autocast_dtype(device)
        x, weight, bias = x.to(half), weight.to(half), None if bias is None else bias.to(half)
    with torch.autocast(device, enabled=False):
        if not torch.is_grad_enabled():
            return _sum(x, weight, bias, targets, output, (False, False, False))[0]
        return _OutputLoss.apply(x, weight, bias, targets, output)


class _OutputLoss(torch.autograd.Function):
    """Gradients are made beside the loss, while a chunk's logits are there: backward only scales them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, output: Output) -> Tensor:
        loss, ctx.made = _sum(x, weight, bias, targets, output, ctx.needs_input_grad[:3])
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (*(None if made is None else made * grads[0].to(made.dtype) for made in ctx.made), None, None)


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def _sum(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, output: Output, needed: tuple[bool, ...]
) -> tuple[Tensor, Gradients]:
    """The loss, and those gradients of ``x``, ``weight`` and ``bias`` that are needed."""
    wide = torch.promote_types(x.dtype, torch.float32)
    loss = torch.zeros((), dtype=wide, device=x.device)
    dx = torch.empty_like(x) if needed[0] else None
    dw = torch.zeros(weight.shape, dtype=wide, device=x.device) if needed[1] else None
    db = torch.zeros(weight.shape[0], dtype=wide, device=x.device) if needed[2] and bias is not None else None
    rows = max(LEAST, CHUNK // weight.shape[0])
    for start in range(0, len(x), rows):
        part, target = x[start : start + rows], targets[start : start + rows]
        logits = weight @ part.T if bias is None else torch.addmm(bias[:, None], weight, part.T)  # v c
        losses, slope = _losses(logits.to(wide), target, output, any(needed))
        loss += losses.sum()
        if slope is None:
            continue
        if db is not None:
            db += slope.sum(1)
        slope = slope.to(x.dtype)
        if dx is not None:
            torch.mm(slope.T, weight, out=dx[start : start + rows])
        if dw is not None and dw.dtype == x.dtype:
            dw.addmm_(slope, part)
        elif dw is not None:
            dw += slope @ part
    made = (dx, None if dw is None else dw.to(weight.dtype), None if db is None or bias is None else db.to(bias.dtype))
    return loss, made


def _losses(logits: Tensor, target: Tensor, output: Output, slopes: bool) -> tuple[Tensor, Tensor | None]:
    """Losses ``(c,)`` and, where asked for, their slopes by the products ``W x^T + bias``, ``(v, c)``."""
    s, z, cap = output.smoothing, output.z_loss, output.softcap
    if output.scale != 1.0:
        logits *= output.scale
    if cap is not None:
        logits = logits.div_(cap).tanh_().mul_(cap)
    elif logits.dtype == torch.float32 and logits.device.type == "cpu" and kernels.available():
        losses = learn.slope(logits, target, smoothing=s, z_loss=z, keep=not slopes)
        if not slopes:
            return losses, None
        return losses, logits if output.scale == 1.0 else logits.mul_(output.scale)
    logs = logits.log_softmax(0)
    own = logs.gather(0, target[None])
    losses = -own if s == 0.0 else (s - 1.0) * own - s * logs.mean(0, keepdim=True)
    lse = logits.gather(0, target[None]) - own
    if z != 0.0:
        losses = losses + z * lse.square()
    if not slopes:
        return losses, None
    slope = logs.exp_()
    if z != 0.0:
        slope *= 1.0 + 2.0 * z * lse
    if s != 0.0:
        slope -= s / len(logits)
    slope.scatter_add_(0, target[None], torch.full_like(own, s - 1.0))
    if cap is not None:
        slope *= 1.0 - (logits / cap).square()
    return losses, slope if output.scale == 1.0 else slope.mul_(output.scale)
