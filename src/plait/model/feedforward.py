"""The position-wise feed-forward network: down(act(up(x))), or gated, down(act(gate(x)) * up(x))."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.architecture import Activation, Architecture
from plait.model.linear import Linear
from plait.model.sites import Part

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),  # So et al. 2021
    "gelu": F.gelu,  # x Phi(x), Hendrycks and Gimpel 2016
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "tanh": torch.tanh,
}


class FeedForward(Part):
    """Vaswani et al. 2017, eq. 2; gated as in Shazeer 2020. Its rows of ``up`` (or ``gate``) are keys, the columns of
    ``down`` values, of a memory (Geva et al. 2021)."""

    sites = ("hidden", "activation")
    kernel: Callable[[Tensor], Tensor] | None = None  # put in from outside: computes the activation instead

    def __init__(self, a: Architecture, d_ff: int) -> None:
        super().__init__()
        self.act, self.limit, self.offset = ACTIVATIONS[a.activation], a.glu_limit, a.glu_offset
        self.gate = Linear(a.d_model, d_ff, bias=a.ffn_bias is True) if a.gated else None
        self.up = Linear(a.d_model, d_ff, bias=a.ffn_bias is True)
        self.down = Linear(d_ff, a.d_model, bias=a.ffn_bias is not False)

    def forward(self, x: Tensor) -> Tensor:
        """``(b, n, d_model)`` -> the same; ``hidden`` and ``activation`` are ``(b, n, d_ff)``."""
        act = self.kernel or self.act
        if self.gate is None:
            fired = act(self.site("hidden", self.up(x)))
        else:
            fired = gated(act, self.site("hidden", self.gate(x)), self.up(x), self.limit, self.offset)
        return self.down(self.site("activation", self.drop(fired)))


def gated(act: Callable[[Tensor], Tensor], gate: Tensor, up: Tensor, limit: float | None, offset: float) -> Tensor:
    """``act(gate) * (up + offset)``, the gate cut above ``limit`` and ``up`` to both sides of it (GPT-OSS)."""
    if limit is not None:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return act(gate) * (up if offset == 0.0 else up + offset)
