"""Calibration: how large the inputs of each matrix are on a text, so that rounding takes care where it matters."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.record import Checkpoint
from plait.model.head import Output
from plait.model.linear import Linear

LENGTH = 512  # tokens read at a time, where the model has no shorter limit


def calibrate(checkpoint: Checkpoint, texts: Iterable[str], *, length: int = LENGTH) -> dict[str, Tensor]:
    """The mean square of every input of every matrix that multiplies: canonical name -> ``(columns,)`` float32.

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
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def count(module: Any, inputs: tuple[Any, ...]) -> None:
        name = names[id(inputs[1] if module.weight is None else module.weight)]  # a tied head is handed its table
        x = inputs[0].detach().flatten(0, -2)
        sums[name] = sums.get(name, 0) + x.double().square().sum(0).cpu()
        counts[name] = counts.get(name, 0) + len(x)

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
    return {name: (total / counts[name]).float() for name, total in sums.items()}
