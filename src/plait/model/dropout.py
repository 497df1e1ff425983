"""Dropout (Srivastava et al. 2014): in training a share of a value is zeroed at random, and the rest scaled up so that
its mean stays.

Where: after the embedding and on what every sublayer adds (residual), on the attention's pattern, and on the
feed-forward network's activation. A part without it, or in ``eval()``, computes exactly what it would if there were
none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plait.model.attention import Attention
from plait.model.embedding import Embedding
from plait.model.experts import Experts
from plait.model.feedforward import FeedForward
from plait.model.norm import Slots
from plait.model.sites import Part

POOL = 1 << 22  # numbers of a mask that are drawn once, on a CPU


def set_dropout(model: nn.Module, *, residual: float = 0.0, attention: float = 0.0, activation: float = 0.0) -> None:
    """What is dropped while the model trains, as shares from 0 to below 1; what is not given is 0, none.

    All draws come from torch's default generator of the device: its state put back, they are the same to the bit.
    Raises ``ValueError`` for any other share.
    """
    rates = {"residual": residual, "attention": attention, "activation": activation}
    for name, rate in rates.items():
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"{name} dropout: {rate} is no share that can be left out; give 0 to below 1.")
    for part, name in _droppers(model):
        part.dropout = Dropout(rates[name]) if rates[name] else None


def _droppers(model: nn.Module) -> Iterator[tuple[Part, str]]:
    for part in model.modules():
        if isinstance(part, Embedding | Slots):
            yield part, "residual"
        elif isinstance(part, Attention):
            yield part, "attention"
        elif isinstance(part, FeedForward | Experts):
            yield part, "activation"


class Dropout:
    """A value with the share ``rate`` of it zeroed, the rest times ``1 / (1 - rate)``."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, x: Tensor) -> Tensor:
        """The same shape. On a CPU the mask is cut out of a pool at a random place: drawing it whole takes as long as
        a small layer does."""
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.rate, training=True)
        pool, left = mask_pool(self.rate, x.dtype), x.numel()
        cuts: list[Tensor] = []
        while left:
            size = min(left, POOL // 2)
            start = int(torch.randint(POOL - size + 1, ()))
            cuts.append(pool[start : start + size])
            left -= size
        return x * (cuts[0] if len(cuts) == 1 else torch.cat(cuts)).view(x.shape) if cuts else x


@functools.cache
def mask_pool(rate: float, dtype: torch.dtype) -> Tensor:
    """``(POOL,)`` of zeros and ``1 / (1 - rate)``, the same in every process."""
    with torch.inference_mode(False), torch.no_grad():
        kept = torch.rand(POOL, generator=torch.Generator().manual_seed(0)) >= rate
        return kept.to(dtype) / (1.0 - rate)
