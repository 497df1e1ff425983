"""Padding: rows of unequal length as one tensor, and the mask that says which tokens are real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor


def padded(
    rows: Sequence[Sequence[int]], device: torch.device, *, side: Literal["left", "right"]
) -> tuple[Tensor, Tensor | None]:
    """Rows of ids as ``(b, n)`` int64, and their mask ``(b, n)``, True is real; ``None`` where all are equally long."""
    n = max(len(row) for row in rows)
    gaps = [[0] * (n - len(row)) for row in rows]
    left = side == "left"
    tokens = torch.tensor(
        [[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, gaps, strict=True)], device=device
    )
    if not any(gaps):
        return tokens, None
    place = torch.arange(n, device=device)
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    return tokens, place >= n - lengths if left else place < lengths
