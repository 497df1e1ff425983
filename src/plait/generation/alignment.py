"""Alignment: which tokens of the source each token of a translation looked at, by the plain model's cross-attention.

The pattern of one layer, its heads averaged, in the pass that scores the translation: a token goes with the source
token that weighs most where it was chosen. The last layer but one is the usual choice (Garg et al. 2019, 4.1).
"""

# b rows, h heads, q tokens written, k tokens of the source

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plait.generation.padding import padded
from plait.generation.runner import check_in_memory

if TYPE_CHECKING:
    from plait.model import Transformer

Pairs = tuple[tuple[int, int], ...]


@torch.inference_mode()
def cross_attention(
    model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], layer: int | None = None
) -> list[Tensor]:
    """For each pair of rows ``(q - 1, k)``: how much the model, about to write ``target[i + 1]``, looked at each token
    of the source. ``targets`` begin with the start token. ``layer``: of the decoder; ``None`` is the last but one.

    ``GenerationError`` for a model that is not in memory.
    """
    from plait.model import watching

    check_in_memory("alignments", model, "a checkpoint loaded without lazy")
    n_layers = model.architecture.n_decoder_layers
    name = f"decoder.layers.{max(n_layers - 2, 0) if layer is None else layer}.cross.pattern"
    device = next(model.parameters()).device
    source, source_mask = padded(sources, device, side="right")
    tokens, mask = padded([target[:-1] for target in targets], device, side="right")
    with watching(model, name, stop_after=name) as seen:
        model(tokens, mask=mask, source=source, source_mask=source_mask)
    pattern = seen[name].mean(1)  # b q k
    return [
        row[: len(target) - 1, : len(source)] for row, source, target in zip(pattern, sources, targets, strict=True)
    ]


def pairs(attention: Tensor, source: Sequence[int], target: Sequence[int]) -> Pairs:
    """``(i, j)``: source token i and target token j, for each j. ``source`` and ``target`` are the places that
    count in ``attention`` ``(q, k)``; i and j number those."""
    if not source or not target:
        return ()
    best = attention[list(target)][:, list(source)].argmax(-1)
    return tuple((i, j) for j, i in enumerate(best.tolist()))
