"""Layers: how large gradients and values are, part by part, at one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from plait.data.batch import Batch
from plait.model import Transformer, watching
from plait.model.sites import site_names
from plait.training.evaluation import evaluating


def part_of(name: str) -> str:
    """``decoder.layers.3``, or the first word of what is in no layer: embedding, head, ..."""
    words = name.split(".")
    return ".".join(words[:3]) if words[1:2] == ["layers"] else words[0]


@torch.no_grad()
def gradient_norms(parameters: Iterable[tuple[str, Tensor]], whole: float) -> dict[str, float]:
    """The norm of each part's gradients, before clipping: scaled so that together they have the norm ``whole``."""
    squares: dict[str, float] = {}
    for name, parameter in parameters:
        if parameter.grad is not None:
            part = part_of(name)
            squares[part] = squares.get(part, 0.0) + float(parameter.grad.float().square().sum())
    clipped = sum(squares.values()) ** 0.5
    return {part: square**0.5 * (whole / clipped if clipped else 0.0) for part, square in squares.items()}


def activation_sizes(model: Transformer, batch: Batch) -> Mapping[str, float]:
    """The root mean square of what the embedding and each layer give on a batch, at real places, without dropout."""
    wanted = [name for name in site_names(model) if _is_output(name)]
    found: dict[str, float] = {}
    with evaluating(model), watching(model, *wanted) as seen:
        model.states(batch.tokens, **batch.inputs)
        for name in wanted:
            value = seen[name].float()
            mask = (
                batch.source_mask if name.startswith(("encoder", "source")) and batch.source is not None else batch.mask
            )
            if mask is not None and mask.shape == value.shape[:2]:
                value = value[mask > 0]
            found[name.removesuffix(".output")] = float(value.square().mean().sqrt())
    return found


def _is_output(name: str) -> bool:
    words = name.split(".")
    return words[-1] == "output" and (len(words) == 4 and words[1] == "layers" or words[0].endswith("embedding"))
