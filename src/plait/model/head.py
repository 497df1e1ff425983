"""Heads: from the last hidden states to logits over the vocabulary, or over classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plait.architecture import Architecture, Classification
from plait.model.feedforward import ACTIVATIONS
from plait.model.linear import Linear
from plait.model.norm import Norm
from plait.model.sites import Part


class Output(nn.Module):
    """The last projection: its own weight, or none where the embedding's table serves (tied), and perhaps a bias."""

    def __init__(self, rows: int, width: int, *, tied: bool, bias: bool) -> None:
        super().__init__()
        self.weight = None if tied else nn.Parameter(torch.empty(rows, width))
        self.bias = nn.Parameter(torch.empty(rows)) if bias else None

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """``(..., width)`` -> ``(..., rows)``; ``table`` is the embedding's, for a tied head."""
        weight = table if self.weight is None else self.weight
        assert weight is not None
        return F.linear(x, weight, self.bias)


class Head(Part):
    """``softcap(scale * output(norm(act(dense(x)))))``: what is not there is skipped. A classification head may pool
    first."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        labels = a.head.labels if isinstance(a.head, Classification) else None
        self.pooling = a.head.pooling if isinstance(a.head, Classification) else None
        self.scale, self.softcap = a.logit_scale, a.logit_softcap
        width = a.d_model
        self.act = ACTIVATIONS[a.head_transform] if a.head_transform else None
        if self.act:
            width = a.d_embedding if labels is None else a.d_model
            self.dense = Linear(a.d_model, width, bias=a.head_bias)
            normed = not isinstance(a.head, Classification) or a.head.norm
            self.norm = Norm(a, width) if normed else None
        rows, bias = (a.vocab_size, a.logit_bias) if labels is None else (labels, True)
        self.output = Output(rows, width, tied=a.tied, bias=bias)

    def forward(self, x: Tensor, table: Tensor | None, real: Tensor | None) -> Tensor:
        """``(b, n, d_model)`` -> ``(b, n, vocab_size or labels)``, pooled ``(b, labels)``; ``real`` ``(b, n)`` is."""
        logits = self.output(self.features(x, real), table)
        logits = logits if self.scale == 1.0 else logits * self.scale
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    def features(self, x: Tensor, real: Tensor | None) -> Tensor:
        """What the last projection reads, ``(..., width)``: pooled and transformed."""
        if self.pooling is not None:
            x = pool(x, real, self.pooling)
        if self.act is not None:
            x = self.act(self.dense(x))
            x = x if self.norm is None else self.norm(x)
        return x


def last_real(x: Tensor, real: Tensor | None) -> Tensor:
    """``(b, n, d)`` -> ``(b, 1, d)``: each row at its last real token, whatever side is padded."""
    if real is None:
        return x[:, -1:]
    n = real.shape[1]
    last = n - 1 - real.flip(1).int().argmax(1)
    return x[torch.arange(x.shape[0], device=x.device), last].unsqueeze(1)


def pool(x: Tensor, real: Tensor | None, pooling: str) -> Tensor:
    """``(b, n, d)`` -> ``(b, d)``: the first real token (``cls``), the ``last``, or their ``mean``, without padding.

    A row without any real token gives zeros under ``mean``.
    """
    if pooling == "last":
        return last_real(x, real)[:, 0]
    if pooling == "cls":
        return x[:, 0] if real is None else x[torch.arange(x.shape[0], device=x.device), real.int().argmax(1)]
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of many leaves half precision's range
    if real is None:
        return wide.mean(1).to(x.dtype)
    total = wide.masked_fill(~real.unsqueeze(-1), 0.0).sum(1)
    return (total / real.sum(1, keepdim=True).clamp(min=1)).to(x.dtype)
