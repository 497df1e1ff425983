"""Native: on a CPU, attention and activations of a model in training by plait's own kernels, put in from outside.

In float32 alone; what else a model computes, and what it computes in another type, is as before. No name changes.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plait.engine import kernels
from plait.engine.learn import SLOPED, activate, attend
from plait.model.attention import Attention, Sight
from plait.model.dropout import POOL, mask_pool
from plait.model.feedforward import ACTIVATIONS, FeedForward

SHORT = 128  # keys below which torch's own attention is as fast, where nothing is dropped


def put_in(model: nn.Module) -> bool:
    """Let a model on a CPU compute by the kernels; whether there are any."""
    if next(model.parameters()).device.type != "cpu" or not kernels.available():
        return False
    names = {ACTIVATIONS[name]: name for name in SLOPED}
    for part in model.modules():
        if isinstance(part, Attention):
            part.kernel = attention
        elif isinstance(part, FeedForward) and part.act in names:
            part.kernel = functools.partial(activation, kind=names[part.act])
    return True


def attention(queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, scale: float, rate: float) -> Tensor:
    """See ``Attention.kernel``. Each head's dropout is cut out of the pool at a random place."""
    if not rate and keys.shape[2] < SHORT:
        group = queries.shape[1] // keys.shape[1]
        given = {"attn_mask": sight.allowed, "is_causal": sight.square, "scale": scale, "enable_gqa": group > 1}
        return F.scaled_dot_product_attention(queries, keys, values, **given)
    queries, keys, values = (x if x.stride(-1) == 1 else x.contiguous() for x in (queries, keys, values))
    allowed = sight.allowed if sight.allowed is None else sight.allowed.contiguous()
    kept = starts = None
    if rate:
        b, h, q = queries.shape[:3]
        kept, starts = cuts(rate, b * h, q * keys.shape[2])
    return attend(queries, keys, values, allowed, kept, starts, sight.square, scale)[0]


@torch.compiler.disable()  # else the pool would be drawn at every call
def cuts(rate: float, rows: int, size: int) -> tuple[Tensor, Tensor]:
    """Zeros and ``1 / (1 - rate)``, and ``(rows,)`` places in them where a mask of ``size`` numbers begins: at random
    in the pool, or one after the other where it is too small for them."""
    if size > POOL // 2:
        return (torch.rand(rows * size) >= rate) / (1.0 - rate), torch.arange(rows) * size
    return mask_pool(rate, torch.float32), torch.randint(POOL - size + 1, (rows,))


def activation(x: Tensor, *, kind: str) -> Tensor:
    """In float32 by the kernel."""
    if x.dtype == torch.float32 and not torch.is_autocast_enabled(x.device.type):
        return activate(x, kind)[0]
    return ACTIVATIONS[kind](x)  # type: ignore[index]
