"""Floating-point operations: two for every multiply-and-add of a matrix product, and nothing else.

What is counted is what torch's own counter counts: products of matrices. Norms, activations, softmax, rotations and
look-ups are left out; they grow with the width, not its square. Scores are counted in full, causal and windowed ones
too: the plain model computes them all and hides some.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import cast

from plait.architecture import Architecture, Classification, Layer, Tower


@dataclass(frozen=True, kw_only=True)
class Flops:
    """FLOPs by part. ``scores`` are both products of attention, queries with keys and pattern with values."""

    embedding: int = 0
    attention: int = 0
    scores: int = 0
    cross: int = 0
    cross_scores: int = 0
    ffn: int = 0
    head: int = 0

    @property
    def total(self) -> int:
        """The sum of the parts."""
        return sum(self.to_dict().values())

    def to_dict(self) -> dict[str, int]:
        """The parts by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __add__(self, other: Flops) -> Flops:
        return Flops(**{name: value + getattr(other, name) for name, value in self.to_dict().items()})

    def __mul__(self, times: int) -> Flops:
        return Flops(**{name: value * times for name, value in self.to_dict().items()})

    __rmul__ = __mul__


def forward(
    architecture: Architecture,
    length: int,
    *,
    batch: int = 1,
    source_length: int | None = None,
    last_only: bool = False,
) -> Flops:
    """One pass over ``batch`` rows of ``length`` tokens, and of ``source_length`` (default ``length``) where there is a
    source.

    ``last_only``: the head reads the last token of every row alone, as it does when a prompt is read.
    """
    a = architecture
    source = _source_length(a, length, source_length)
    tower = a.towers[-1]
    total = _embedding(a, batch * length) + _layers(a, tower, batch, length, length, source, source)
    total += _head(a, batch, 1 if last_only else length)
    return total if a.kind != "encoder-decoder" else encode(a, source, batch=batch) + total


def encode(architecture: Architecture, length: int, *, batch: int = 1) -> Flops:
    """The encoder of an encoder-decoder over sources of ``length`` tokens: once, however much is then written."""
    tower = architecture.tower("encoder")
    return _embedding(architecture, batch * length) + _layers(architecture, tower, batch, length, length, 0, 0)


def training_step(
    architecture: Architecture, length: int, *, batch: int = 1, source_length: int | None = None
) -> Flops:
    """Three times the forward pass: backward makes two products of every one, for the inputs and for the weights.

    Loss, clipping and the optimizer are no matrix products; recomputing activations would add a forward pass.
    """
    return forward(architecture, length, batch=batch, source_length=source_length) * 3


def next_token(
    architecture: Architecture, position: int, *, batch: int = 1, source_length: int | None = None, cached: bool = True
) -> Flops:
    """The pass that reads the token at ``position`` (from 0) and says the next, for every row.

    With a cache that token alone is read and attends to ``position + 1`` keys, its own included; a source's keys and
    values are there. Without one all ``position + 1`` tokens are read anew, and the source's keys and values made anew;
    the encoder is not run again. Either way it is one pass of every layer of the decoder.
    """
    a = architecture
    if a.kind == "encoder":
        raise ValueError("next_token: an encoder alone says no next token; ask for the forward pass.")
    keys, source = position + 1, _source_length(a, position + 1, source_length)
    new = 1 if cached else keys
    layers = _layers(a, a.tower("decoder"), batch, new, keys, source, 0 if cached else source)
    return _embedding(a, batch * new) + layers + _head(a, batch, 1)


def _source_length(a: Architecture, length: int, source_length: int | None) -> int:
    if a.kind != "encoder-decoder":
        if source_length is not None:
            raise ValueError(
                f"source_length: {source_length} was given, but a model of kind {a.kind!r} reads no source."
            )
        return 0
    return length if source_length is None else source_length


def _linear(tokens: int, *widths: tuple[int, int]) -> int:
    return 2 * tokens * sum(out * width for out, width in widths)


def _embedding(a: Architecture, tokens: int) -> Flops:
    width = cast(int, a.d_embedding)
    return Flops(embedding=0 if width == a.d_model else _linear(tokens, (a.d_model, width)))


def _layers(a: Architecture, tower: Tower, batch: int, new: int, keys: int, source: int, new_source: int) -> Flops:
    """All layers: ``new`` tokens read, ``keys`` and ``source`` attended to, ``new_source`` of these not yet cached."""
    d, tokens = a.d_model, batch * new
    inner, shared = tower.n_heads * tower.d_head, tower.n_kv_heads * tower.d_head
    layer = Flops(
        attention=_linear(tokens, (inner, d), (shared, d), (shared, d), (d, inner)),
        scores=2 * _linear(tokens, (inner, keys)),
    )
    if tower.cross:
        layer += Flops(
            cross=_linear(tokens, (inner, d), (d, inner)) + _linear(batch * new_source, (shared, d), (shared, d)),
            cross_scores=2 * _linear(tokens, (inner, source)),
        )
    return layer * tower.n_layers + Flops(ffn=sum(_feed_forward(a, tower, kind, tokens) for kind in tower.layers))


def _feed_forward(a: Architecture, tower: Tower, kind: Layer, tokens: int) -> int:
    """One layer's: of experts those that a token takes, and the router. That is exact, whoever is picked."""
    matrices, e = 3 if a.gated else 2, a.experts
    if e is None or not kind.sparse:
        return _linear(tokens, *[(tower.d_ff, a.d_model)] * matrices)
    widths = [*[e.d_expert] * e.per_token, *([e.d_shared] if e.d_shared else [])]
    judged = [e.n_experts, *([1] if e.shared_gate else [])]
    return _linear(tokens, *[(w, a.d_model) for w in widths] * matrices, *[(out, a.d_model) for out in judged])


def _head(a: Architecture, batch: int, length: int) -> Flops:
    if a.head is None:
        return Flops()
    classes = a.head if isinstance(a.head, Classification) else None
    tokens = batch if classes and classes.pooling else batch * length
    rows = classes.labels if classes else a.vocab_size
    if a.head_transform is None:
        return Flops(head=_linear(tokens, (rows, a.d_model)))
    width = a.d_model if classes else cast(int, a.d_embedding)
    return Flops(head=_linear(tokens, (width, a.d_model), (rows, width)))
