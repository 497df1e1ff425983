"""The position-wise feed-forward network: down(act(up(x))), or gated, down(act(gate(x)) * up(x))."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.architecture import Activation, Architecture, Tower
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

    def __init__(self, a: Architecture, tower: Tower) -> None:
        super().__init__()
        self.act = ACTIVATIONS[a.activation]
        self.gate = Linear(a.d_model, tower.d_ff, bias=a.ffn_bias is True) if a.gated else None
        self.up = Linear(a.d_model, tower.d_ff, bias=a.ffn_bias is True)
        self.down = Linear(tower.d_ff, a.d_model, bias=a.ffn_bias is not False)

    def forward(self, x: Tensor) -> Tensor:
        """``(b, n, d_model)`` -> the same; ``hidden`` and ``activation`` are ``(b, n, d_ff)``."""
        if self.gate is None:
            fired = self.act(self.site("hidden", self.up(x)))
        else:
            fired = self.act(self.site("hidden", self.gate(x))) * self.up(x)
        return self.down(self.site("activation", fired))
