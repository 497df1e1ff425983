"""Random packed matrices of every format, and products in float64 with the activations rounded as the kernels do."""

from __future__ import annotations

import torch
from torch import Tensor

from plait.engine.packed import FORMATS, Packed, groups, pack, pack_groups, unpack


def parts(format: str, rows: int, columns: int, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor | None]:
    """Integers of a quantised format, and scales and minimums for them."""
    layout = FORMATS[format]
    assert layout.scale is not None
    low, high, dtype = (-128, 128, torch.int8) if layout.bits == 8 else (0, 16, torch.uint8)
    quants = torch.randint(low, high, (rows, columns), dtype=dtype, generator=draw)
    groups = -(-columns // layout.inputs)
    scales = (torch.rand(rows, groups, generator=draw) / 10 + 0.01).to(layout.scale)
    minimums = -torch.rand(rows, groups, generator=draw).to(layout.scale) if layout.minimum else None
    return quants, scales, minimums


def drawn(format: str, rows: int, columns: int, draw: torch.Generator) -> Packed:
    if FORMATS[format].scale is None:
        return pack(torch.randn(rows, columns, generator=draw), format)
    return pack_groups(*parts(format, rows, columns, draw), format)


def rounded(x: Tensor, format: str) -> Tensor:
    """What the kernels multiply with: scale * integer for each group of inputs, float64."""
    layout = FORMATS[format]
    if layout.scale is None:
        return x.double()
    n, columns = x.shape
    groups = -(-columns // layout.inputs)
    wide = torch.zeros(n, groups * layout.inputs)
    wide[:, :columns] = x
    wide = wide.view(n, groups, layout.inputs)
    top, largest = wide.abs().amax(2, keepdim=True), torch.tensor(32767.0)
    if layout.bits == 4:  # 16 bits for a group with an outlier, otherwise 8
        root = x.square().mean(1).sqrt()[:, None, None]
        largest = torch.where(top > 8 * root, 127.0 * 257, 127.0)
    inverse = torch.where(top > 0, largest / top, 0.0)
    return ((wide * inverse).round().double() * (top / largest).double()).flatten(1)[:, :columns]


def expected(x: Tensor, packed: Packed) -> tuple[Tensor, Tensor]:
    """The product in float64, and the sum of the magnitudes that are added up for it, which errors are measured by."""
    weights = unpack(packed).double()
    x, added = rounded(x, packed.format), weights.abs()
    if FORMATS[packed.format].bits == 4:
        quants, scales, minimums = groups(packed)
        low = 8 * scales if minimums is None else minimums.abs()
        added = quants.double().view(*scales.shape, -1) * scales[..., None] + low[..., None]
        added = added.flatten(1)[:, : packed.columns]
    return x @ weights.T, x.abs() @ added.T
