"""Calibration: how the inputs of each matrix go together on a text, so that rounding takes care where it matters."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from plait.checkpoint.compensation import slab_width
from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.quantise import block_types
from plait.checkpoint.record import Checkpoint
from plait.model.head import Output
from plait.model.linear import Linear

LENGTH = 512  # tokens read at a time, where the model has no shorter limit


def calibrate(checkpoint: Checkpoint, texts: Iterable[str], *, length: int = LENGTH) -> dict[str, Tensor]:
    """The second moments ``E[x x^T]`` of the inputs of every matrix that can be rounded, by canonical name.

    Each is float32 ``(slabs, width, width)``: up to 4,096 inputs that follow each other are a slab, and inputs of two
    slabs count as if they had nothing in common. Matrices that read the same inputs share one tensor.

    The plain model reads the texts in pieces of ``length`` tokens. A decoder behind an encoder reads each piece as its
    source and again as its target. Raises ``CheckpointError`` for a checkpoint without a tokenizer or without weights
    in memory, and for texts without a token.
    """
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    if tokenizer is None:
        raise CheckpointError("calibrate: this checkpoint has no tokenizer to read texts with.")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    place = next(model.parameters()).device
    if place.type == "meta":
        raise CheckpointError("calibrate: the model is on the meta device and cannot read; load it with its weights.")
    rounded = block_types(checkpoint.architecture, "int8")
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    readers: dict[str, str] = {}  # who reads what the matrix before it read -> the first who does
    last: tuple[Tensor, str] | None = None

    def count(module: Any, inputs: tuple[Any, ...]) -> None:
        nonlocal last
        name = names[id(inputs[1] if module.weight is None else module.weight)]  # a tied head is handed its table
        if name not in rounded:
            return
        x = inputs[0]
        if last is None or last[0] is not x:
            last = x, name
        if readers.setdefault(name, last[1]) != name:
            return
        slabs = x.detach().flatten(0, -2).float().unflatten(1, (-1, slab_width(x.shape[-1]))).transpose(0, 1)
        sums[name] = sums.get(name, 0) + (slabs.mT @ slabs).cpu()
        counts[name] = counts.get(name, 0) + slabs.shape[1]

    a = checkpoint.architecture
    limits = [length, *([a.max_length] if a.max_length else [])]
    with ExitStack() as hooks, torch.no_grad():
        for module in model.modules():
            if isinstance(module, Linear | Output):
                hooks.callback(module.register_forward_pre_hook(count).remove)
        for text in texts:
            ids = tokenizer.encode(text)
            for start in range(0, len(ids), min(limits)):
                piece = torch.tensor([ids[start : start + min(limits)]], device=place)
                if a.kind == "encoder-decoder":
                    writer = tokenizer.target or tokenizer
                    again = writer.encode(tokenizer.decode(piece[0].tolist(), skip_specials=True))
                    first = [] if checkpoint.rules.start is None else [checkpoint.rules.start]
                    target = torch.tensor([[*first, *again][: min(limits)]], device=place)
                    model(target, source=piece)
                else:
                    model(piece)
    if not sums:
        raise CheckpointError("calibrate: there is no token in these texts.")
    moments = {name: total.div_(counts[name]) for name, total in sums.items()}
    return {name: moments[first] for name, first in readers.items()}
