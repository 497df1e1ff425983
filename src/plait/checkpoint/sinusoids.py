"""Stored tables of sinusoids, which plait computes instead: one that says something else is refused."""

from __future__ import annotations

from collections.abc import Collection

import torch

from plait.architecture import Architecture
from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.source import FLOATS, TensorSource
from plait.model.position import sinusoids

ROWS = 256  # compared, spread over the table
FLOAT32_ANGLES = 1e-3  # how far the tables of old files are off, which took their angles in float32


def check_sinusoids(architecture: Architecture, source: TensorSource, names: Collection[str]) -> None:
    """Raise over the first of the stored tables ``names`` that is not the architecture's own, beyond rounding.

    The row in front of the first position may be anything: it stands for padding, whose vectors nothing reads.
    """
    spec = architecture.sinusoid
    for name in names:
        assert spec is not None  # of the families that have such tables
        shape = source.shape(name)
        if len(shape) != 2 or shape[1] != architecture.d_embedding or source.stored_type(name) not in FLOATS:
            raise CheckpointError(
                f"{name}: it is {source.stored_type(name)} of shape {shape}; a table of positions has rows of "
                f"{architecture.d_embedding} numbers here."
            )
        rows = torch.linspace(0, shape[0] - 1, min(ROWS, shape[0]), dtype=torch.float64).long()
        rows = rows[rows != architecture.position_offset - 1]
        table = source.read(name)
        off = (table[rows].float() - sinusoids(rows, shape[1], spec)).abs().max().item() if len(rows) else 0.0
        if not off <= FLOAT32_ANGLES + torch.finfo(table.dtype).eps / 2:
            raise CheckpointError(
                f"{name}: it differs from the sinusoids that this family computes, by {off:.3g}; plait has no trained "
                "table in their place."
            )
