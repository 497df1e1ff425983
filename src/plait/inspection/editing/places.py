"""Places: the matrices that facts are written into, those of the feed-forward network's values, of any kind of network.

Legend: m neurons, w width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from plait.checkpoint import Checkpoint
from plait.inspection.errors import InspectionError
from plait.model import Transformer
from plait.model.block import Block
from plait.model.experts import Experts
from plait.model.feedforward import FeedForward


@dataclass(frozen=True, kw_only=True)
class Place:
    """A layer of the decoder whose values ``parameter`` holds: ``(w, m)``; ``key`` is the site of what fires them."""

    layer: int
    parameter: str
    key: str

    def weight(self, model: Transformer) -> Tensor:
        """``(w, m)``, the model's own."""
        return model.get_parameter(self.parameter)


def place(model: Transformer, layer: int) -> Place:
    """Where layer ``layer`` of the decoder keeps its values: of experts, in the one that every token takes.

    Raises ``InspectionError`` for layers that there are not, and for experts none of which every token takes.
    """
    blocks = blocks_of(model)
    if not 0 <= layer < len(blocks):
        raise InspectionError(f"layer: {layer}, and there are layers 0 to {len(blocks) - 1}.")
    ffn, path = blocks[layer].ffn, f"decoder.layers.{layer}.ffn"
    if isinstance(ffn, Experts):
        if ffn.shared is None:
            raise InspectionError(
                f"{path}: each token takes other experts there, so no matrix of it is a fact's; choose a layer without "
                "experts, or with one that every token takes."
            )
        if ffn.shared_gate is not None:
            raise InspectionError(
                f"{path}: what the shared expert counts changes from token to token; choose another layer."
            )
        path = f"{path}.shared"
    assert model.decoder is not None
    if model.decoder.tower.schedule.count(layer) > 1:
        raise InspectionError(f"{path}: its weights are those of several layers; a change there is one of all of them.")
    return Place(layer=layer, parameter=f"{path}.down.weight", key=f"{path}.activation")


def blocks_of(model: Transformer) -> list[Block]:
    """The decoder's layers as they run."""
    assert model.decoder is not None, "it was checked"
    return model.decoder.blocks


@contextmanager
def added(model: Transformer, layer: int, rows: Tensor, places: Tensor, delta: Tensor) -> Iterator[None]:
    """Inside the block the feed-forward network of a layer gives ``delta`` ``(w,)`` more at one place of each row."""
    network = blocks_of(model)[layer].ffn
    assert isinstance(network, FeedForward | Experts)

    def change(_: nn.Module, __: object, output: Tensor) -> Tensor:
        more = torch.zeros_like(output)
        return output + more.index_put((rows, places), delta.to(output.dtype).expand(len(rows), -1))

    handle = network.register_forward_hook(change)
    try:
        yield
    finally:
        handle.remove()


def edited(checkpoint: Checkpoint, weights: Mapping[str, Tensor]) -> Checkpoint:
    """The checkpoint with other weights under some names; all the rest it shares with the one given, which stays."""
    with torch.device("meta"):
        model = Transformer(checkpoint.architecture)
    own = {name: parameter.detach() for name, parameter in checkpoint.model.named_parameters()}
    model.load_state_dict({**own, **weights}, assign=True)
    model.requires_grad_(False)
    return replace(checkpoint, model=model.eval())
