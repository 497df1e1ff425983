"""Precision: what a pass computes in, while what the optimizer moves stays float32.

float32          parameters and pass
bfloat16         products of matrices in bfloat16, by autocast (Micikevicius et al. 2018)
float16          the same in float16, the loss scaled so that small gradients do not vanish; for GPUs
pure_bfloat16    parameters and pass wholly in bfloat16, beside float32 masters that take the updates
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from plait.training.plain import Plain, Precision


def precision_of(kind: str, model: nn.Module) -> Precision:
    """The precision of a recipe's ``run.precision``; ``pure_bfloat16`` turns the model's parameters to bfloat16."""
    if kind == "float32":
        return Plain(model)
    if kind == "pure_bfloat16":
        return Masters(model)
    device = next(model.parameters()).device.type
    if kind == "bfloat16":
        return Autocast(model, device, torch.bfloat16)
    if kind == "float16":
        if device == "cpu":
            raise ValueError("precision: float16 is slower than float32 on a CPU, and less exact; choose bfloat16.")
        return Scaled(model, device)
    raise ValueError(f"precision: {kind!r} is none of float32, bfloat16, pure_bfloat16, float16.")


class Autocast(Plain):
    """Products of matrices in half precision; parameters, sums and norms as they are."""

    def __init__(self, model: nn.Module, device: str, dtype: torch.dtype) -> None:
        super().__init__(model)
        self.device, self.dtype = device, dtype

    def computing(self) -> AbstractContextManager[Any]:
        """Autocast."""
        return torch.autocast(self.device, self.dtype)


class Scaled(Autocast):
    """The loss times a power of two: halved where gradients overflow, and then the step is left out; doubled after
    ``patience`` steps without."""

    def __init__(
        self, model: nn.Module, device: str, dtype: torch.dtype = torch.float16, *, patience: int = 2000
    ) -> None:
        super().__init__(model, device, dtype)
        self.scale, self.calm, self.patience = 2.0**16, 0, patience

    def adapt(self, finite: bool) -> bool:
        """Whether the step is left out. At a scale of 1 gradients that are not finite are no fault of the scale."""
        if not finite:
            lowered, self.scale, self.calm = self.scale > 1.0, max(1.0, self.scale / 2), 0
            return lowered
        self.calm += 1
        if self.calm == self.patience:
            self.scale, self.calm = self.scale * 2, 0
        return False

    def state(self) -> Any:
        """Scale, and steps since it changed."""
        return [self.scale, self.calm]

    def restore(self, state: Any) -> None:
        """Count on from there."""
        if state is not None:
            self.scale, self.calm = float(state[0]), int(state[1])


class Masters(Plain):
    """Float32 copies of the parameters, which take updates that bfloat16 would round away; gradients are summed over
    micro-batches in float32 too."""

    scale = 1.0

    def __init__(self, model: nn.Module) -> None:
        moved = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._masters = {name: p.detach().float().clone().requires_grad_() for name, p in moved.items()}
        model.to(torch.bfloat16)
        super().__init__(model)
        self._moved = {name: self._parameters[name] for name in moved}
        for parameter in self._moved.values():
            parameter.grad_dtype = torch.float32

    def masters(self) -> dict[str, Tensor]:
        """The float32 copies."""
        return dict(self._masters)

    def collect(self) -> None:
        """Hand the gradients over."""
        for name, parameter in self._moved.items():
            self._masters[name].grad, parameter.grad = parameter.grad, None

    @torch.no_grad()
    def spread(self) -> None:
        """Round the masters to the parameters."""
        for name, parameter in self._moved.items():
            parameter.copy_(self._masters[name])
