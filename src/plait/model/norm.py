"""Normalisation: LayerNorm and RMSNorm with every published kind of weight, and the slots a sublayer has for them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plait.architecture import Architecture
from plait.model.sites import Part


class Norm(Part):
    """LayerNorm (Ba et al. 2016, eq. 4) or RMSNorm (Zhang and Sennrich 2019, eq. 4) over the last dimensions.

    ``shape``: of the weight; its last dimension is normalised. Weights are plain (w), offset (1 + w) or absent. Where
    every head has its own there is no bias.
    """

    def __init__(self, a: Architecture, *shape: int) -> None:
        super().__init__()
        self.width, self.eps = shape[-1], a.norm_eps
        self.centred, self.offset = a.norm == "layernorm", a.norm_weight == "offset"
        self.weight = nn.Parameter(torch.empty(shape)) if a.norm_weight != "none" else None
        self.bias = nn.Parameter(torch.empty(shape)) if a.norm_bias and len(shape) == 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """``(..., width)`` -> the same shape."""
        weight, bias = self.weight, self.bias
        if self.offset and weight is not None:
            # 1 + w in half precision would round w away; w̑ is applied in float32 and rounded once
            wide = self._normalise(x.float() if x.dtype != torch.float64 else x, None, None)
            y = wide * (1 + weight.to(wide.dtype))
            return (y if bias is None else y + bias.to(wide.dtype)).to(x.dtype)
        if weight is not None and weight.ndim > 1:  # a weight for every head
            return self._normalise(x, None, None) * weight
        return self._normalise(x, weight, bias)

    def _normalise(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        if self.centred:
            return F.layer_norm(x, (self.width,), weight, bias, self.eps)
        return F.rms_norm(x, (self.width,), weight, self.eps)


class Slots(Part):
    """The norms around one sublayer: ``before`` it, ``after`` it, and at the ``merge`` with the residual stream."""

    def __init__(self, a: Architecture, filled: tuple[str, ...]) -> None:
        super().__init__()
        self.skip_scale, self.residual_scale = a.skip_scale, a.residual_scale
        self.before = Norm(a, a.d_model) if "before" in filled else None
        self.after = Norm(a, a.d_model) if "after" in filled else None
        self.merge = Norm(a, a.d_model) if "merge" in filled else None

    def enter(self, x: Tensor) -> Tensor:
        """What the sublayer reads."""
        return x if self.before is None else self.before(x)

    def branch(self, y: Tensor) -> Tensor:
        """What is added to the stream."""
        y = _in_range(y) if self.after is None else self.after(_in_range(y))
        return self.drop(y if self.residual_scale == 1.0 else y * self.residual_scale)

    def leave(self, x: Tensor, branch: Tensor) -> Tensor:
        """The stream after the sublayer."""
        y = _in_range((x if self.skip_scale == 1.0 else x * self.skip_scale) + branch)
        return y if self.merge is None else self.merge(y)


def _in_range(x: Tensor) -> Tensor:
    """T5's feed-forward leaves float16's range, where inf - inf would turn to NaN; other types are wide enough."""
    return x.clamp(-65504.0, 65504.0) if x.dtype == torch.float16 else x
