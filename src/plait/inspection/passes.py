"""Passes: a decoder's forward pass in two halves, so that what is asked many times over is computed once.

Legend: b rows, n places, w width, v vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor
from torch.func import functional_call

from plait.model import Transformer, watching
from plait.model.mask import Places, place
from plait.model.stack import row_lengths


@torch.no_grad()
def stream_before(model: Transformer, layer: int, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """The residual stream that a layer reads, ``(b, n, w)``; ``tokens`` and ``mask`` ``(b, n)``."""
    name = f"decoder.layers.{layer - 1}.output" if layer else "embedding.output"
    with watching(model, name, stop_after=name) as seen:
        model(tokens, mask=mask)
    return seen[name]


def onwards(
    model: Transformer,
    states: Tensor,
    layer: int,
    mask: Tensor | None = None,
    *,
    weights: Mapping[str, Tensor] = MappingProxyType({}),
) -> Tensor:
    """The last hidden states ``(b, n, w)``, from those that ``layer`` reads; with some other ``weights`` by name."""
    assert model.decoder is not None, "a decoder's pass"
    places: Places = place(mask, None, states.shape[1], states.device)
    given = {name.removeprefix("decoder."): value for name, value in weights.items()}
    return functional_call(
        model.decoder, given, (states, places, places, row_lengths(places)), {"first": layer}, tie_weights=False
    )


def read_out(model: Transformer, hidden: Tensor) -> Tensor:
    """Logits ``(k, v)`` of some hidden states ``(k, w)``."""
    assert model.head is not None and model.embedding.tokens is not None, "a language model"
    return model.head(hidden, model.embedding.tokens.weight, None)
