"""Making: small models in float64, whose differences are of the mathematics and not of rounding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.model import Transformer, initialize
from plait.model.initialization import Scheme


def drawn(architecture: Architecture, scheme: Scheme = "xavier", *, seed: int = 0) -> Transformer:
    """A model as it is before it learns, ready to be looked into."""
    model = Transformer(architecture).double()
    initialize(model, scheme, seed=seed)
    return model.eval()


def one_row(tokens: Sequence[int]) -> Tensor:
    """``(1, n)``."""
    return torch.tensor([list(tokens)])
