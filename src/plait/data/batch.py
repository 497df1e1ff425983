"""Batch: what a model reads and what it should say, so that loss and loop know no objective.

Legend: b rows, n tokens, m source tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor

UNCOUNTED = -100  # a target that is none: torch's own number for it

Against = Literal["vocabulary", "classes", "values", "rows"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows for one pass.

    Args:
        tokens: ``(b, n)`` int64, what the model reads (an encoder-decoder's decoder).
        targets: what it should say, -100 where nothing is asked. ``against`` says of what they are numbers:
            ``vocabulary``: ``(b, n)`` int64, the token at each place, already shifted;
            ``classes``: ``(b,)``, or ``(b, n)`` where every token has one, int64;
            ``values``: ``(b, labels)`` float32, to regress;
            ``rows``: ``(b,)`` int64, the row of this batch that each row should be nearest to.
        mask: ``(b, n)`` boolean, True is real; or document numbers, 0 is padding.
        source, source_mask: ``(b, m)``, what an encoder-decoder's encoder reads.
        token_types, positions: ``(b, n)``, where the model takes them.
    """

    tokens: Tensor
    targets: Tensor
    mask: Tensor | None = None
    source: Tensor | None = None
    source_mask: Tensor | None = None
    token_types: Tensor | None = None
    positions: Tensor | None = None
    against: Against = "vocabulary"

    @property
    def real(self) -> Tensor:
        """Which targets count: of ``targets``' shape, boolean."""
        if self.against == "values":
            return torch.ones_like(self.targets, dtype=torch.bool)
        return self.targets != UNCOUNTED

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What a ``Transformer`` takes besides the tokens."""
        names = ("mask", "source", "source_mask", "token_types", "positions")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def to(self, device: torch.device | str) -> Self:
        """The same on a device."""
        moved: dict[str, Any] = {
            field.name: value.to(device, non_blocking=True)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)
