"""Every parameter of a Transformer by its name, with its shape: the table that files, counts and the model share."""

from __future__ import annotations

from collections.abc import Iterator

from plait.architecture import Architecture, Classification, Experts, Layer, Tower

Shape = tuple[int, ...]

# norm_placement -> the norms around a sublayer f: merge(skip * x + after(f(before(x))))
SLOTS = {"pre": ("before",), "post": ("merge",), "sandwich": ("before", "after"), "branch": ("after",)}


def parameters(architecture: Architecture) -> dict[str, Shape]:
    """Name and shape of every parameter, in the order of the figure; linear weights are (out, in).

    Equal to the state dict of ``Transformer(architecture)``. A tied head has no tensor of its own.
    """
    a = architecture
    named = [*_embeddings(a), *(pair for tower in a.towers for pair in _tower(a, tower)), *_head(a)]
    return dict(named)


def _norm(a: Architecture, name: str, *shape: int) -> Iterator[tuple[str, Shape]]:
    if a.norm_weight != "none":
        yield f"{name}.weight", shape
    if a.norm_bias and len(shape) == 1:  # no bias beside a weight for every head
        yield f"{name}.bias", shape


def _linear(name: str, out: int, width: int, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (out, width)
    if bias:
        yield f"{name}.bias", (out,)


def _embeddings(a: Architecture) -> Iterator[tuple[str, Shape]]:
    if a.kind == "encoder-decoder":
        yield from _embedding(a, "source_embedding", None if a.shares_embedding else a.source_vocab_size, a.token_types)
        yield from _embedding(a, "embedding", a.vocab_size, 0)
    else:
        yield from _embedding(a, "embedding", a.vocab_size, a.token_types if a.kind == "encoder" else 0)


def _embedding(a: Architecture, name: str, words: int | None, types: int) -> Iterator[tuple[str, Shape]]:
    width = a.d_embedding
    if words:
        yield f"{name}.tokens.weight", (words, width)
    if a.position == "learned":
        yield f"{name}.positions.weight", ((a.max_length or 0) + a.position_offset, width)
    if types:
        yield f"{name}.types.weight", (types, width)
    if a.embedding_norm:
        yield from _norm(a, f"{name}.norm", width)
    if width != a.d_model:
        yield from _linear(f"{name}.projection", a.d_model, width, True)


def _tower(a: Architecture, tower: Tower) -> Iterator[tuple[str, Shape]]:
    for i, kind in enumerate(tower.distinct):
        layer = f"{tower.name}.layers.{i}"
        yield from _attention(a, tower, f"{layer}.attention")
        if a.attention_sinks:
            yield f"{layer}.attention.sinks", (tower.n_heads,)
        if a.relative_bias and (i == 0 or a.relative_bias.per_layer):
            yield f"{layer}.attention.relative_bias.weight", (a.relative_bias.buckets, tower.n_heads)
        if i or a.first_norm:
            yield from _slots(a, f"{layer}.attention_norms")
        if tower.cross:
            yield from _attention(a, tower, f"{layer}.cross")
            yield from _slots(a, f"{layer}.cross_norms")
        yield from _feed_forward(a, tower, kind, f"{layer}.ffn")
        if a.parallel != "shared":
            yield from _slots(a, f"{layer}.ffn_norms")
    if a.final_norm:
        yield from _norm(a, f"{tower.name}.norm", a.d_model)


def _feed_forward(a: Architecture, tower: Tower, layer: Layer, name: str) -> Iterator[tuple[str, Shape]]:
    e = a.experts
    if e is None or not layer.sparse:
        yield from _projections(a, name, tower.d_ff)
        return
    yield from _router(a, e, f"{name}.router")
    for part, shape in _projections(a, f"{name}.experts", e.d_expert):
        yield part, (e.n_experts, *shape)
    if e.d_shared:
        yield from _projections(a, f"{name}.shared", e.d_shared)
    if e.shared_gate:
        yield from _linear(f"{name}.shared_gate", 1, a.d_model, False)


def _router(a: Architecture, e: Experts, name: str) -> Iterator[tuple[str, Shape]]:
    yield from _linear(name, e.n_experts, a.d_model, e.router_bias)
    if e.selection_bias:
        yield f"{name}.score_bias", (e.n_experts,)


def _projections(a: Architecture, name: str, width: int) -> Iterator[tuple[str, Shape]]:
    """The two or three matrices of one feed-forward network."""
    for part in ("gate", "up") if a.gated else ("up",):
        yield from _linear(f"{name}.{part}", width, a.d_model, a.ffn_bias is True)
    yield from _linear(f"{name}.down", a.d_model, width, a.ffn_bias is not False)


def _slots(a: Architecture, name: str) -> Iterator[tuple[str, Shape]]:
    for slot in SLOTS[a.norm_placement]:
        yield from _norm(a, f"{name}.{slot}", a.d_model)


def _attention(a: Architecture, tower: Tower, name: str) -> Iterator[tuple[str, Shape]]:
    queries, keys = tower.n_heads * tower.d_head, tower.n_kv_heads * tower.d_head
    for projection, out in (("query", queries), ("key", keys), ("value", keys)):
        yield from _linear(f"{name}.{projection}", out, a.d_model, a.qkv_bias)
    yield from _linear(f"{name}.output", a.d_model, queries, a.output_bias)
    if a.qk_norm:
        for norm, heads in (("query_norm", tower.n_heads), ("key_norm", tower.n_kv_heads)):
            shape = {"head": (tower.d_head,), "per_head": (heads, tower.d_head), "full": (heads * tower.d_head,)}
            yield from _norm(a, f"{name}.{norm}", *shape[a.qk_norm])


def _head(a: Architecture) -> Iterator[tuple[str, Shape]]:
    if a.head is None:
        return
    labels = a.head.labels if isinstance(a.head, Classification) else None
    width = a.d_model
    if a.head_transform:
        width = a.d_model if labels else a.d_embedding
        yield from _linear("head.dense", width, a.d_model, a.head_bias)
        if not isinstance(a.head, Classification) or a.head.norm:
            yield from _norm(a, "head.norm", width)
    if not a.tied:
        yield "head.output.weight", (labels or a.vocab_size, width)
    if labels or a.logit_bias:
        yield "head.output.bias", (labels or a.vocab_size,)
