"""Muon: torch's own, with all matrices of one shape in one product, in the type that the device multiplies fast.

Torch's iteration takes a matrix at a time, in bfloat16 on every device; without instructions for it a processor needs
25 times as long as in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from plait.engine import kernels, learn
from plait.training.arithmetic import multiplies_bfloat16

SMALL = 1 << 17  # numbers of a matrix that stays in a core's cache through all steps of the kernel

Coefficients = tuple[float, float, float]


class Muon(torch.optim.Muon):
    """Momentum, made orthogonal, moves matrices (Jordan et al. 2024); settings and state are those of torch's."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """Move all matrices, each of which has a gradient."""
        assert closure is None, "a closure is never given"
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for matrix in group["params"]:
                shapes.setdefault(matrix.shape, []).append(matrix)
            for matrices in shapes.values():
                self._move(matrices, group)

    def _move(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        """Matrices of one shape."""
        ahead: list[Tensor] = []
        for matrix in matrices:
            assert matrix.grad is not None, "a matrix without a gradient"
            memory = self.state[matrix]
            if "momentum_buffer" not in memory:
                memory["momentum_buffer"] = torch.zeros_like(matrix)
            momentum = memory["momentum_buffer"].lerp_(matrix.grad, 1 - group["momentum"])
            ahead.append(matrix.grad.lerp(momentum, group["momentum"]))  # Nesterov's
        x = torch.stack(ahead)  # k a b
        moves = orthogonal(
            x.bfloat16() if multiplies_bfloat16(x.device) else x, group["ns_coefficients"], group["ns_steps"]
        ).to(x)
        rows, columns = matrices[0].shape
        for matrix, move in zip(matrices, moves, strict=True):
            matrix.mul_(1 - group["lr"] * group["weight_decay"])
            matrix.add_(move, alpha=-group["lr"] * math.sqrt(max(1.0, rows / columns)))


def orthogonal(x: Tensor, coefficients: Coefficients, steps: int, eps: float = 1e-7) -> Tensor:
    """Matrices ``(k, a, b)`` with their singular values brought near 1, by ``steps`` of a quintic Newton-Schulz
    iteration; the shorter side is multiplied."""
    a, b, c = coefficients
    if tall := x.shape[1] > x.shape[2]:
        x = x.mT
    if x.dtype == torch.float32 and x.device.type == "cpu" and x[0].numel() <= SMALL and kernels.available():
        x = x.contiguous()
        learn.orthogonalise(x, coefficients, steps, eps)
        return x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
