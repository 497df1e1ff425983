"""Grouped products: rows sorted by expert, each multiplied with its own expert's matrix and no other.

One operation for torch, so that a model with experts compiles to one graph, that its counter knows the work on any
device, and that the gradient of all matrices is written in one place instead of one for each expert.

Legend: r rows, e experts; a weight is (e, out, in).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

# What torch's own grouped product takes: on a GPU bfloat16 alone, nowhere float64, and rows of whole 16 bytes.
NATIVE = {"cpu": (torch.float32, torch.bfloat16, torch.float16), "cuda": (torch.bfloat16,)}


@torch.library.custom_op("plait::grouped_product", mutates_args=())
def grouped_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """``x (r, in)``, expert i's rows from ``ends[i - 1]`` to ``ends[i]`` -> ``x W^T (r, out)``."""
    whole = all(width * x.itemsize % 16 == 0 for width in weight.shape[1:])
    if len(x) and whole and x.dtype == weight.dtype and x.dtype in NATIVE.get(x.device.type, ()):
        return F.grouped_mm(x.contiguous(), weight.transpose(1, 2), offs=ends.int())
    y = x.new_empty(len(x), weight.shape[1])
    for expert, rows in runs(ends):
        torch.mm(x[rows], weight[expert].t(), out=y[rows])
    return y


@torch.library.custom_op("plait::grouped_outer", mutates_args=())
def grouped_outer(y: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """``y (r, out)`` and ``x (r, in)`` -> ``y^T x`` of each expert's rows, ``(e, out, in)``: a weight's gradient."""
    made = x.new_zeros(len(ends), y.shape[1], x.shape[1])
    for expert, rows in runs(ends):
        torch.mm(y[rows].t(), x[rows], out=made[expert])
    return made


def runs(ends: Tensor) -> Iterator[tuple[int, slice]]:
    """The experts that have rows, and which."""
    start = 0
    for expert, end in enumerate(ends.tolist()):
        if end > start:
            yield expert, slice(start, end)
        start = end


@grouped_product.register_fake
def _(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(len(x), weight.shape[1])


@grouped_outer.register_fake
def _(y: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(len(ends), y.shape[1], x.shape[1])


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weight, ends = ctx.saved_tensors
    of_x = grouped_product(grad, weight.transpose(1, 2), ends) if ctx.needs_input_grad[0] else None
    of_weight = grouped_outer(grad, x, ends) if ctx.needs_input_grad[1] else None
    return of_x, of_weight, None


grouped_product.register_autograd(_backward, setup_context=_keep)


@register_flop_formula([torch.ops.plait.grouped_product])
def _product_flops(x: tuple[int, ...], weight: tuple[int, ...], *_: Any, **__: Any) -> int:
    return 2 * x[0] * weight[1] * weight[2]


@register_flop_formula([torch.ops.plait.grouped_outer])
def _outer_flops(y: tuple[int, ...], x: tuple[int, ...], *_: Any, **__: Any) -> int:
    return 2 * y[0] * y[1] * x[1]


class GroupedLinear(nn.Module):
    """A linear layer for each expert: ``weight (e, out, in)``, ``bias (e, out)``."""

    def __init__(self, experts: int, width: int, out: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, out, width))
        self.bias = nn.Parameter(torch.empty(experts, out)) if bias else None

    def forward(self, x: Tensor, experts: Tensor, ends: Tensor) -> Tensor:
        """``(r, in)`` -> ``(r, out)``; ``experts (r,)`` ascending, and where the rows of each end, ``ends (e,)``."""
        y = grouped_product(x, self.weight, ends)
        return y if self.bias is None else y + self.bias[experts]

    def columns(self, x: Tensor, expert: int) -> Tensor:
        """One expert alone, ``(in, c)`` -> ``(out, c)``."""
        y = self.weight[expert] @ x
        return y if self.bias is None else y + self.bias[expert].unsqueeze(-1)
