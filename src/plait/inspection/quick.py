"""Quick: a model's products and attention by the engine's kernels, where many tokens are read and nothing is learnt.

In float32 on a CPU, where there are kernels; all else is computed as before. Numbers differ by rounding alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.engine import kernels
from plait.engine.learn import attend
from plait.engine.packed import Packed, pack
from plait.model import Transformer
from plait.model.attention import Attention, Sight
from plait.model.linear import Linear

MOST = 1 << 32  # bytes of weights, up to which a second copy of them is kept
SHORT = 128  # keys below which torch's own attention is as fast


class Product:
    """``x W^T + b`` for ``x (..., in)`` and ``weight (out, in)``."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.packed: Packed | None = pack(self.weight, "F32") if suits(weight) else None

    def __call__(self, input: Tensor) -> Tensor:
        """``(..., in)`` -> ``(..., out)``."""
        if self.packed is None or input.dtype != torch.float32:
            return F.linear(input, self.weight, self.bias)
        rows = input.reshape(-1, input.shape[-1]).contiguous()
        made = kernels.product(_team(torch.get_num_threads()), self.packed, rows, bias=self.bias)
        return made.unflatten(0, input.shape[:-1])


def suits(weight: Tensor) -> bool:
    """Whether there are kernels for such weights."""
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and kernels.available()


@contextmanager
def quick(model: Transformer) -> Iterator[None]:
    """Inside the block the model computes so; afterwards it is as before. Not for gradients."""
    linears = [part for part in model.modules() if type(part) is Linear]  # none with more to it, as an adapter
    attentions = [part for part in model.modules() if isinstance(part, Attention) and part.kernel is None]
    size = sum(part.weight.nbytes for part in linears)
    if size > MOST or not all(suits(part.weight) for part in linears):
        yield
        return
    try:
        for part in linears:
            part.forward = Product(part.weight, part.bias)  # an attribute of its own hides the class's method
        for part in attentions:
            part.kernel = _attention
        yield
    finally:
        for part in linears:
            part.__dict__.pop("forward", None)
        for part in attentions:
            part.kernel = None


@cache
def _team(threads: int) -> kernels.Team:
    return kernels.Team(threads, borrowed=True)


def _attention(queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, scale: float, rate: float) -> Tensor:
    """See ``Attention.kernel``; nothing is dropped."""
    assert not rate, "a model that is looked at does not learn"
    if keys.shape[2] < SHORT:
        group = queries.shape[1] // keys.shape[1]
        given = {"attn_mask": sight.allowed, "is_causal": sight.square, "scale": scale, "enable_gqa": group > 1}
        return F.scaled_dot_product_attention(queries, keys, values, **given)
    queries, keys, values = (x if x.stride(-1) == 1 else x.contiguous() for x in (queries, keys, values))
    allowed = None if sight.allowed is None else sight.allowed.contiguous()
    return attend(queries, keys, values, allowed, None, None, sight.square, scale)[0]
