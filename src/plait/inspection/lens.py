"""Lens: the residual stream after each layer, read as if it were the last (nostalgebraist 2020, "logit lens").

Each layer is normed by the final norm with the statistics of its own values, then read by the head.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from plait.inspection.trace import Trace
from plait.model import Transformer
from plait.model.stack import Stack


def stack_of(model: Transformer) -> Stack:
    """The tower that the head reads."""
    stack = model.decoder if model.decoder is not None else model.encoder
    assert stack is not None, "a model has a tower"
    return stack


@torch.no_grad()
def unembed(model: Transformer, states: Tensor) -> Tensor:
    """What the model would say if its last layer had left ``states`` ``(..., n, d_model)`` in the residual stream: the
    final norm, then the head; ``(..., n, vocab_size)``, and without a head the normed states."""
    norm, head = stack_of(model).norm, model.head
    states = states if norm is None else norm(states)
    if head is None:
        return states
    assert model.embedding.tokens is not None, "the table of a tied head"
    return head(states, model.embedding.tokens.weight, None)


def stream(trace: Trace, *, between: bool = False) -> Iterator[tuple[str, Tensor]]:
    """The residual stream of the tower that the head reads, ``(n, d_model)`` each, with its site's name: the embedding,
    then what each layer leaves; with ``between`` also after attention and cross-attention."""
    yield "embedding.output", trace["embedding.output"]
    for turn in range(len(stack_of(trace.model).blocks)):
        layer = f"{trace.tower}.layers.{turn}"
        names = (f"{layer}.after_attention", f"{layer}.after_cross", f"{layer}.output")
        for name in names if between else names[-1:]:
            if name in trace:
                yield name, trace[name]


def lens(trace: Trace, *, between: bool = False) -> Iterator[tuple[str, Tensor]]:
    """``stream``, each as the output that it would be; the last is the model's own."""
    for name, states in stream(trace, between=between):
        yield name, unembed(trace.model, states[None])[0]
