"""Resize: give a checkpoint's vocabulary more rows; it never loses trained ones unasked."""

from __future__ import annotations

import dataclasses

import torch

from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.record import Checkpoint
from plait.model import Transformer

_TABLES = ("embedding.tokens.weight", "head.output.weight", "head.output.bias")


@torch.no_grad()
def resize(checkpoint: Checkpoint, rows: int, *, shrink: bool = False) -> Checkpoint:
    """A checkpoint whose vocabulary has at least ``rows`` rows; new ones are the mean of the old (Hewitt 2021).

    Where there are more already, as in tables padded to a round number, it is returned as it is; ``shrink`` cuts them.
    Other parameters are shared with the old model. Raises ``CheckpointError`` for less than one row.
    """
    if rows < 1:
        raise CheckpointError(f"rows: {rows} leaves no vocabulary; give at least 1.")
    old = checkpoint.architecture.vocab_size
    if rows == old or (rows < old and not shrink):
        return checkpoint
    architecture = checkpoint.architecture.replace(vocab_size=rows)
    with torch.device("meta"):
        model = Transformer(architecture)
    state = checkpoint.model.state_dict()
    for name in _TABLES:
        if name in state and len(state[name]) == old:
            table = state[name]
            new = table.float().mean(0, keepdim=True).to(table.dtype).expand(max(rows - old, 0), *table.shape[1:])
            state[name] = torch.cat([table[:rows], new])
    model.load_state_dict(state, assign=True)
    return dataclasses.replace(checkpoint, architecture=architecture, model=model.eval())
