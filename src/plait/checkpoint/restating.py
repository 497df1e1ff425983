"""The same model in another dialect's terms: norms that scale by 1 + w as norms that scale by w, and back.

An architecture that differs from what a family always has in this alone computes the same with other numbers. It is
done in float32; a bfloat16 scale would lose bits (families that have the knob keep it: nothing is done then).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Architecture

_SHIFT = {("offset", "plain"): 1.0, ("plain", "offset"): -1.0}


@dataclass(frozen=True)
class Restated:
    """An architecture, and what its norms' weights are more than those of the one it restates."""

    architecture: Architecture
    shift: float = 0.0

    def apply(self, name: str, value: Tensor) -> Tensor:
        """A parameter of the old architecture as one of the new."""
        is_scale = name.endswith(".weight") and any(part.endswith(("norm", "norms")) for part in name.split("."))
        return value.to(torch.float32) + self.shift if self.shift and is_scale else value


def restated(architecture: Architecture, family: Any) -> Restated:
    """The architecture with the norms that ``family`` always has, if they can be made from its own."""
    settings = getattr(family, "settings", None)  # the native dialect has none, and says anything
    wanted = None if settings is None else settings.get("norm_weight", "plain")
    shift = _SHIFT.get((architecture.norm_weight, wanted)) if isinstance(wanted, str) else None
    return Restated(architecture) if shift is None else Restated(architecture.replace(norm_weight=wanted), shift)
