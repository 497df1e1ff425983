"""Tensor parallel: each of n processes holds a slice of every layer, heads and feed-forward rows divided among them
(Shoeybi et al. 2019, section 3), by a plan over the names of parameters.

A matrix of COLUMNS is cut by its outputs, one of ROWS by its inputs; between the two nothing is exchanged. What goes in
is the same everywhere and its gradients are summed; what comes out is summed. Slices are plain tensors, so that every
optimizer and precision takes them as they are: torch's fused optimizers take no mixture of plain and distributed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from plait.architecture import Architecture
from plait.model.linear import Linear
from plait.training.processes import ParallelError

COLUMNS, ROWS = ("query", "key", "value", "gate", "up"), ("output", "down")


def check_divides(model: nn.Module, n: int) -> None:
    """``ParallelError`` naming the first part of a model that n processes cannot share."""
    check_shape(model.architecture, n)  # pyright: ignore[reportArgumentType]
    if adapted := [name for name, _ in model.named_parameters() if ".adapter." in name]:
        raise ParallelError(f"{adapted[0]}: adapters are not divided; train them with run.parallel = 'data' or 'fsdp'.")


def check_shape(a: Architecture, n: int) -> None:
    """``ParallelError`` naming the first part of an architecture that n processes cannot share."""
    if a.experts is not None:
        raise ParallelError("experts: tensor parallel does not divide them; train with run.parallel = 'fsdp'.")
    if a.alibi is not None:
        raise ParallelError("alibi: its slopes are of all heads together; train with run.parallel = 'fsdp'.")
    if a.qk_norm == "full":
        raise ParallelError("qk_norm: 'full' is over all heads at once; train with run.parallel = 'fsdp'.")
    for tower in a.towers:
        for field in ("n_heads", "n_kv_heads", "d_ff"):
            if (value := getattr(tower, field)) % n:
                raise ParallelError(f"{field}: the {tower.name}'s {value} cannot be divided among {n} processes.")


def plan(a: Architecture, names: Iterator[str] | list[str]) -> dict[str, int]:
    """Which dimension of each parameter is cut; the others are whole everywhere."""
    cut: dict[str, int] = {}
    for name in names:
        *path, module, leaf = name.split(".")
        if ".layers." not in name or not path:
            continue
        if path[-1] in ("attention", "cross", "ffn") and module in COLUMNS:
            cut[name] = 0
        elif path[-1] in ("attention", "cross", "ffn") and module in ROWS and leaf == "weight":
            cut[name] = 1
        elif leaf == "sinks" or (module in ("query_norm", "key_norm") and a.qk_norm == "per_head"):
            cut[name] = 0
        elif module == "relative_bias":
            cut[name] = 1
    return cut


def slice_of(value: Tensor, dim: int, place: int, n: int) -> Tensor:
    """The ``place``-th of n equal parts, in memory of its own."""
    return value.chunk(n, dim)[place].clone()


def divide(model: nn.Module, group: dist.ProcessGroup) -> Mapping[str, int]:
    """Leave in each process of ``group`` its slices of a model that is the same in all, which then compute together
    what it computed; returns the ``plan``. It was checked."""
    n, place = dist.get_world_size(group), dist.get_rank(group)
    a: Architecture = model.architecture  # type: ignore[assignment]
    parameters = dict(model.named_parameters())
    cut = plan(a, list(parameters))
    for name, dim in cut.items():
        parameters[name].data = slice_of(parameters[name].data, dim, place, n)
    for name, module in model.named_modules():
        if isinstance(module, Linear) and f"{name}.weight" in cut:
            if cut[f"{name}.weight"] == 0:
                module.register_forward_pre_hook(partial(_enter, group))
            else:
                module.forward = partial(_leave, module, group)  # pyright: ignore[reportAttributeAccessIssue]
        elif name.endswith(("query_norm", "key_norm")):
            for parameter in module.parameters():
                if parameter.ndim == 1:  # one for every head: each process has the gradient of its own heads
                    parameter.register_hook(partial(_summed, group))
    return cut


def _enter(group: dist.ProcessGroup, linear: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (_Enter.apply(inputs[0], group), *inputs[1:])


def _leave(linear: Linear, group: dist.ProcessGroup, x: Tensor) -> Tensor:
    y = _Leave.apply(F.linear(x, linear.weight), group)
    return y if linear.bias is None else y + linear.bias.to(y.dtype)  # once, not once for every slice


def _summed(group: dist.ProcessGroup, value: Tensor) -> Tensor:
    total = value.contiguous().clone()
    dist.all_reduce(total, group=group)
    return total


class _Enter(torch.autograd.Function):
    """The same forward; gradients summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _summed(ctx.group, grads[0]), None


class _Leave(torch.autograd.Function):
    """Summed forward; the same gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        return _summed(group, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None
