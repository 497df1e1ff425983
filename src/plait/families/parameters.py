"""Every parameter of an Architecture by its canonical name, with its shape: what a family's weights must fill."""

# V vocabulary, e embedding width, d model width, H query heads, K key and value heads, h head width

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from plait.architecture import Architecture, Classification, Tower

Shape = tuple[int, ...]
SLOTS = {"pre": ("before",), "post": ("merge",), "sandwich": ("before", "after"), "branch": ("after",)}


def parameters(architecture: Architecture) -> dict[str, Shape]:
    """``{canonical name: shape}``, in the order of the figure; linear weights are (out, in)."""
    a = architecture
    found = dict(_embedding(a, "embedding", a.vocab_size, a.token_types if a.kind == "encoder" else 0))
    if a.kind == "encoder-decoder":
        words = a.encoder.vocab_size if a.encoder else None
        found |= dict(_embedding(a, "source_embedding", words or 0, a.token_types))
    for tower in a.towers:
        found |= dict(_tower(a, tower))
    return found | dict(_head(a))


def _norm(a: Architecture, name: str, *shape: int) -> Iterator[tuple[str, Shape]]:
    if a.norm_weight != "none":
        yield f"{name}.weight", shape
    if a.norm_bias:
        yield f"{name}.bias", shape


def _linear(name: str, out: int, width: int, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (out, width)
    if bias:
        yield f"{name}.bias", (out,)


def _embedding(a: Architecture, name: str, words: int, types: int) -> Iterator[tuple[str, Shape]]:
    e = cast(int, a.d_embedding)
    if words:
        yield f"{name}.tokens.weight", (words, e)
    if a.position == "learned":
        yield f"{name}.positions.weight", (cast(int, a.max_length) + a.position_offset, e)
    if types:
        yield f"{name}.types.weight", (types, e)
    if a.embedding_norm:
        yield from _norm(a, f"{name}.norm", e)
    if e != a.d_model:
        yield from _linear(f"{name}.projection", a.d_model, e, True)


def _tower(a: Architecture, tower: Tower) -> Iterator[tuple[str, Shape]]:
    for i in range(tower.n_layers):
        layer = f"{tower.name}.layers.{i}"
        yield from _attention(a, tower, f"{layer}.attention")
        if a.qk_norm:
            for norm, heads in (("query_norm", tower.n_heads), ("key_norm", tower.n_kv_heads)):
                h = tower.d_head
                shape = {"head": (h,), "per_head": (heads, h), "full": (heads * h,)}[a.qk_norm]
                yield from _norm(a, f"{layer}.attention.{norm}", *shape)
        if a.relative_bias and (i == 0 or a.relative_bias.per_layer):
            yield f"{layer}.attention.relative_bias.weight", (a.relative_bias.buckets, tower.n_heads)
        if tower.cross:
            yield from _attention(a, tower, f"{layer}.cross")
        for name in ("gate", "up") if a.gated else ("up",):
            yield from _linear(f"{layer}.ffn.{name}", tower.d_ff, a.d_model, a.ffn_bias)
        yield from _linear(f"{layer}.ffn.down", a.d_model, tower.d_ff, a.ffn_bias)
        for part in ("attention", *(["cross"] if tower.cross else []), *(["ffn"] if a.parallel != "shared" else [])):
            for slot in SLOTS[a.norm_placement]:
                yield from _norm(a, f"{layer}.{part}_norms.{slot}", a.d_model)
    if a.final_norm:
        yield from _norm(a, f"{tower.name}.norm", a.d_model)


def _attention(a: Architecture, tower: Tower, name: str) -> Iterator[tuple[str, Shape]]:
    queries, keys = tower.n_heads * tower.d_head, tower.n_kv_heads * tower.d_head
    for projection, out in (("query", queries), ("key", keys), ("value", keys)):
        yield from _linear(f"{name}.{projection}", out, a.d_model, a.qkv_bias)
    yield from _linear(f"{name}.output", a.d_model, queries, a.output_bias)


def _head(a: Architecture) -> Iterator[tuple[str, Shape]]:
    if a.head is None:
        return
    labels = a.head.labels if isinstance(a.head, Classification) else 0
    width = a.d_model
    if a.head_transform:
        width = a.d_model if labels else cast(int, a.d_embedding)
        yield from _linear("head.dense", width, a.d_model, True)
        if not labels:
            yield from _norm(a, "head.norm", width)
    if not a.tied:
        yield "head.output.weight", (labels or a.vocab_size, width)
    if labels or a.logit_bias:
        yield "head.output.bias", (labels or a.vocab_size,)
