"""Reading values: which tokens a vector, added to the residual stream, makes likelier (Geva et al. 2021, section 4).

Legend: m vectors, w width, v tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from plait.model import Transformer

CHUNK = 1024  # vectors that are read at once


def table_of(model: Transformer, tower: str) -> Tensor:
    """``(v, w)``: the matrix by which a tower's stream is read: the head's, with the final norm's weight in it; of an
    encoder beside a decoder its own embedding."""
    both = model.encoder is not None and model.decoder is not None
    if tower == "encoder" and both:
        own = model.source_embedding
        embedding = model.embedding if own is None or own.tokens is None else own
        assert embedding.tokens is not None
        return _widened(embedding.tokens.weight, embedding.projection)
    stack = model.decoder if model.decoder is not None else model.encoder
    assert stack is not None and model.embedding.tokens is not None
    table = model.embedding.tokens.weight
    if model.head is not None and model.head.output.weight is not None and model.head.pooling is None:
        table = model.head.output.weight
    table = _widened(table, model.embedding.projection)
    if stack.norm is not None and stack.norm.weight is not None:
        table = table * (stack.norm.weight + (1 if stack.norm.offset else 0))
    return table


def _widened(table: Tensor, projection: torch.nn.Module | None) -> Tensor:
    """A table of narrow rows (ALBERT's), by the projection that widens them."""
    return table if projection is None else table @ projection.get_parameter("weight").t()


@torch.no_grad()
def read_values(table: Tensor, values: Tensor, k: int = 10) -> Iterator[tuple[Tensor, Tensor]]:
    """The ``k`` tokens that each of ``values`` ``(m, w)`` raises most, and by how much, ``(chunk, k)`` each; the
    chunks make up all of them, in order."""
    for start in range(0, len(values), CHUNK):
        found = (values[start : start + CHUNK].to(table.dtype) @ table.t()).topk(min(k, len(table)))
        yield found.indices, found.values
