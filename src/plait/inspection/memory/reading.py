"""Reading values: which tokens a vector, added to the residual stream, makes likelier (Geva et al. 2021, section 4).

Between a sublayer and the output there are norms, and sometimes a transform of the head. A norm is a linear map but for
one positive number, its scale at the place at hand, so what a vector adds to the logits on the direct way, all later
sublayers left aside, has the same direction at every place. An activation in the head is taken as a straight line, with
the slope that it has on average.

Legend: m vectors, w width, v tokens, h width in the head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from plait.inspection.errors import InspectionError
from plait.inspection.lens import stack_of
from plait.inspection.memory.visits import stacks
from plait.inspection.quick import Product
from plait.model import Transformer
from plait.model.head import Head
from plait.model.norm import Norm, Slots
from plait.model.stack import Stack

CELLS = 1 << 22  # scores that are in memory at once: few enough for a processor's cache


@dataclass(frozen=True, kw_only=True, eq=False)
class Reader:
    """How the stream of a tower is read as tokens: by ``table`` ``(v, w)``, which is the ``head``'s, with all that
    stands before it; or, where no head says tokens of this stream, by likeness to the tower's own ``embedding``."""

    model: Transformer
    tower: str
    table: Tensor
    by: Literal["head", "embedding"]

    @classmethod
    def of(cls, model: Transformer, tower: str, slope: Tensor | None = None) -> Reader:
        """``slope`` ``(h,)``: of the activation in the head, where there is one; see ``slope``."""
        if read_by_head(model, tower):
            return cls(model=model, tower=tower, table=_head_table(model, slope), by="head")
        return cls(model=model, tower=tower, table=_embedding_table(model, tower), by="embedding")

    @property
    def stack(self) -> Stack:
        """The tower."""
        return stacks(self.model)[self.tower]

    def carried(self, turn: int, vectors: Tensor, *, branch: bool = False) -> Tensor:
        """Vectors ``(m, w)`` of a layer's feed-forward network as they come to the end of the tower, each but for a
        positive factor; with ``branch`` vectors that are already what is added to the stream."""
        joints = self.joints(turn)
        for norm in (None if branch else joints[0].after, *(slots.merge for slots in joints)):
            vectors = vectors if norm is None else _through(norm, vectors)
        return vectors

    def scores(self, turn: int, vectors: Tensor, *, branch: bool = False) -> Iterator[Tensor]:
        """How much each vector adds to each token's logit, ``(chunk, v)`` at a time, in order."""
        vectors = self.carried(turn, vectors.detach().to(self.table.dtype), branch=branch)
        for chunk in vectors.split(self.chunk):
            yield self._product(chunk)

    @torch.no_grad()
    def answers(self, turn: int, states: Tensor, *, before: bool = False) -> Tensor:
        """The token ``(p,)`` that the model would say if the layer had left ``states`` ``(p, w)`` and nothing more were
        added; with ``before`` if they were what the layer's feed-forward network is added to."""
        for slots in self.joints(turn)[0 if before else 1 :]:
            states = slots.leave(states, torch.zeros_like(states))
        if self.by == "embedding":
            states, output = states.to(self.table.dtype), self._product
        else:
            assert self.model.head is not None, "it says tokens"
            norm, output = self.stack.norm, self._output
            states = self.model.head.features(states if norm is None else norm(states), None)
        return torch.cat(
            [output(chunk).argmax(-1) for chunk in states.split(self.chunk)]
        )  # scale and cap move no order

    @cached_property
    def _product(self) -> Product:
        return Product(self.table)

    @cached_property
    def _output(self) -> Product:
        assert self.model.head is not None, "it says tokens"
        return Product(_output_weight(self.model), self.model.head.output.bias)

    def joints(self, turn: int) -> list[Slots]:
        """Where the stream is joined from a layer's feed-forward network on, that first, to the place it is read at."""
        blocks = self.stack.blocks
        found = [blocks[turn].ffn_norms]
        for block in blocks[turn + 1 :] if self.by == "head" else ():
            found.append(block.attention_norms)
            if block.cross_norms is not None:
                found.append(block.cross_norms)
            if block.parallel == "none":
                found.append(block.ffn_norms)
        return found

    @property
    def chunk(self) -> int:
        """How many vectors are read at once."""
        return max(1, CELLS // len(self.table))


def read_by_head(model: Transformer, tower: str) -> bool:
    """Whether the model's head says tokens out of this tower's stream."""
    return isinstance(model.architecture.head, str) and stacks(model)[tower] is stack_of(model)


def table_of(model: Transformer, tower: str, slope: Tensor | None = None) -> Tensor:
    """``(v, w)``: what a tower's stream is read by; see ``Reader``."""
    return Reader.of(model, tower, slope).table


@torch.no_grad()
def slope(head: Head, states: Tensor) -> Tensor | None:
    """The mean slope of the activation in a head, ``(h,)``, over last hidden states ``(p, w)``; None without one."""
    if head.act is None:
        return None
    with torch.enable_grad():
        x = head.dense(states).detach().requires_grad_()
        (found,) = torch.autograd.grad(head.act(x).sum(), x)
    return found.mean(0)


def _head_table(model: Transformer, slope: Tensor | None) -> Tensor:
    head, norm = model.head, stack_of(model).norm
    assert head is not None, "it says tokens"
    table = _wide(_output_weight(model))
    if head.act is not None:
        if slope is None:
            raise InspectionError("slope: this head bends what it reads; say how steeply, on average.")
        if head.norm is not None:
            table = _behind(head.norm, table)
        table = (table * slope) @ _wide(head.dense.weight)
    return table if norm is None else _behind(norm, table)


def _output_weight(model: Transformer) -> Tensor:
    assert model.head is not None and model.embedding.tokens is not None, "it says tokens"
    own = model.head.output.weight
    return model.embedding.tokens.weight if own is None else own


def _embedding_table(model: Transformer, tower: str) -> Tensor:
    own = model.source_embedding if tower == "encoder" and model.source_embedding is not None else model.embedding
    tokens = own.tokens or model.embedding.tokens
    assert tokens is not None, "a tower reads tokens"
    table = _wide(tokens.weight)
    if own.norm is not None:
        table = _through(own.norm, table)
    if own.projection is not None:
        table = table @ _wide(own.projection.weight).t()
    return torch.nn.functional.normalize(table, dim=-1)


def _through(norm: Norm, vectors: Tensor) -> Tensor:
    """Rows past a norm, but for its scale and its bias."""
    vectors = vectors - vectors.mean(-1, keepdim=True) if norm.centred else vectors
    return vectors if norm.weight is None else vectors * _weight(norm)


def _behind(norm: Norm, table: Tensor) -> Tensor:
    """The table that reads what stands before a norm as ``table`` reads what stands behind it."""
    table = table if norm.weight is None else table * _weight(norm)
    return table - table.mean(-1, keepdim=True) if norm.centred else table


def _weight(norm: Norm) -> Tensor:
    assert norm.weight is not None
    return _wide(norm.weight) + (1 if norm.offset else 0)


def _wide(x: Tensor) -> Tensor:
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))
