"""Layers: what one layer keeps of a pass until its gradients are made, tensor by tensor, as torch's autograd saves it.

    a product of matrices    what it reads, where its matrix learns; under autocast each matrix a copy of it
    a norm                   what it reads, and its spread; a CPU's RMSNorm what it made of it too
    attention, fused         queries, keys, values, the mix, a number for each query, and a mask where there is one
    attention, in the open   the same, and the scores two or three times
    an activation            what it reads, or for relu and tanh what it gave; gated, what it is multiplied with too

Legend: b rows, n tokens of a row, q = b n, m tokens of a source's row.
"""

from __future__ import annotations

from collections.abc import Iterator

from plait.account.passes import WIDE, Pass, length_of, norm
from plait.architecture import Architecture, Layer, Tower

SHORT = 256  # keys up to which a CPU attends in the open in half precision: as in model/attention.py
KEEPS = {  # activation -> values kept beside the one that is handed on
    "relu": 0,
    "tanh": 0,
    "relu2": 1,
    "gelu": 1,
    "gelu_tanh": 1,
    "silu": 1,
    "quick_gelu": 2,
}


def layer(a: Architecture, tower: Tower, kind: Layer, index: int, p: Pass) -> Iterator[tuple[str, int]]:
    """What one layer keeps, by part."""
    place, n = f"{tower.name}.layers.{index}", length_of(tower, p)
    q = p.rows * n
    stream, side_by_side = q * a.d_model, a.parallel != "none"
    sublayers = 2 + tower.cross
    if a.norm_placement in ("pre", "sandwich"):
        entries = sublayers - (a.parallel == "shared") - (index == 0 and not a.first_norm)
        yield "norms", entries * norm(a, p, stream, a.d_model, p.w) - side_by_side * (entries - 1) * stream * p.w
    if a.norm_placement != "pre":
        size = p.w if a.norm_placement == "post" else p.c
        yield "norms", sublayers * norm(a, p, stream, a.d_model, size)
    if p.residual:
        yield "dropout", sublayers * p.dropped(stream, p.c)
    yield "attention", p.read(f"{place}.attention", ("query", "key", "value"), stream)
    yield "attention", _attention(a, tower, kind, f"{place}.attention", p, n, n)
    if tower.cross:
        m = n if p.source_length is None else p.source_length
        yield "cross", p.read(f"{place}.cross", ("query",), stream)
        if p.autocast:
            yield "cross", p.read(f"{place}.cross", ("key", "value"), p.rows * m * a.d_model)
        yield "cross", _attention(a, tower, None, f"{place}.cross", p, n, m)
    if (a.parallel != "shared" or p.autocast) and not (a.experts and kind.sparse):
        yield "ffn", p.read(f"{place}.ffn", ("gate", "up") if a.gated else ("up",), stream)
    yield "ffn", _feed_forward(a, tower, kind, f"{place}.ffn", p, q)


def _attention(a: Architecture, tower: Tower, kind: Layer | None, place: str, p: Pass, n: int, keys: int) -> int:
    """Everything between what the projections read and what the output gives; ``kind`` is ``None`` for cross."""
    b, heads, groups = p.rows, tower.n_heads // p.slices, tower.n_kv_heads // p.slices
    queries, shared, spread = (b * count * tower.d_head for count in (n * heads, keys * groups, keys * heads))
    scores = b * heads * n * keys
    window = kind is not None and kind.window is not None and kind.window < keys
    biased = kind is not None and (a.relative_bias is not None or a.alibi is not None)
    causal = kind is not None and tower.causal
    square = causal and not (p.masked or window or biased)
    hidden = not square and (p.masked or window or causal)
    total = _prepared(a, tower, queries, shared, p)
    learnt_bias = a.relative_bias is not None and kind is not None and p.device == "cpu"  # which no kernel there takes
    if _in_the_open(a, keys, p):
        anew = square or hidden or a.attention_sinks or p.attention  # the softmax, with something taken out of it
        times = 1 + (a.attention_softcap is not None) + bool(anew)
        wide = p.autocast and (biased or p.device == "cuda")  # a softmax in float32, and a copy of what it gave
        size = WIDE + p.c * (times - 1 if p.device == "cuda" else 1) if wide else times * p.c
        dropped = p.dropped(scores, p.c) if p.attention else 0
        return total + (2 * queries + 2 * spread) * p.c + scores * size + dropped
    if learnt_bias:
        return total + (2 * queries + 2 * spread + scores) * p.c
    laid = queries if kind is not None and kind.rope is not None and p.learns(f"{place}.output.weight") else 0
    mask = (b if p.masked else 1) * n * keys if hidden and not biased else 0  # a bias holds it, once for all layers
    return total + (2 * queries + 2 * shared + laid + mask) * p.c + b * heads * n * WIDE


def _in_the_open(a: Architecture, keys: int, p: Pass) -> bool:
    """Whether no kernel fuses scores, softmax and mix: see ``model/attention.py``."""
    slow = p.device == "cpu" and (p.attention or (p.c == 2 and keys <= SHORT))
    return a.attention_softcap is not None or a.attention_sinks or slow


def _prepared(a: Architecture, tower: Tower, queries: int, shared: int, p: Pass) -> int:
    """What norms and clipping of queries, keys and values read."""
    clipped = (queries + 2 * shared) * p.c if a.qkv_clip is not None else 0
    if a.qk_norm is None:
        return clipped
    widths = (
        [tower.d_head] * 2 if a.qk_norm != "full" else [tower.n_heads * tower.d_head, tower.n_kv_heads * tower.d_head]
    )
    return clipped + sum(norm(a, p, size, width, p.c) for size, width in zip((queries, shared), widths, strict=True))


def _feed_forward(a: Architecture, tower: Tower, kind: Layer, place: str, p: Pass, q: int) -> int:
    """One feed-forward network, or its router and those experts that tokens take."""
    e = a.experts
    if e is None or not kind.sparse:
        return _network(a, place, p, q, tower.d_ff // p.slices, p.c)
    rows = q * e.per_token
    routed = q * a.d_model * (p.c if p.autocast else WIDE)  # what a router reads
    routed += q * e.n_experts * (WIDE + 8) + rows * (5 * 8 + 4 * WIDE)  # scores, their order; who goes where
    taken = 3 * rows * a.d_model * p.w  # what they read, sorted, what they made, and that weighed
    shared = _network(a, f"{place}.shared", p, q, e.d_shared, p.c) if e.d_shared else 0
    shared += q * a.d_model * p.c if e.shared_gate else 0
    if e.d_shared and p.c != WIDE:  # what it reads is not what the router has read, in float32 or a copy of its own
        shared += p.read(f"{place}.shared", ("gate", "up") if a.gated else ("up",), q * a.d_model)
    return routed + taken + _network(a, f"{place}.experts", p, rows, e.d_expert, p.w) + shared


def _network(a: Architecture, place: str, p: Pass, q: int, width: int, size: int) -> int:
    """What is kept between a network's first matrices and its last, in numbers of ``size`` bytes."""
    values, kept = q * width, KEEPS[a.activation]
    read = p.learns(f"{place}.down.weight")
    if a.gated:
        kept += 2 + (2 if a.glu_limit is not None else 0)  # the activation, and what it is multiplied with
    serves = KEEPS[a.activation] == 0 and not a.gated  # what the activation gave, for itself and for what reads it
    made = kept + (read or serves) + (read and serves and p.activation)
    return values * size * made + (p.dropped(values, size) if p.activation else 0)
