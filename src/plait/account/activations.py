"""Activations: what a pass keeps until its gradients are made, over a whole model; with layers computed twice, of each
what it reads alone, and of one of them all."""

from __future__ import annotations

from math import prod
from typing import cast

from plait.account.layers import KEEPS, layer
from plait.account.passes import INDEX, WIDE, Pass, length_of, norm
from plait.account.tensors import multiplies
from plait.architecture import Architecture, Classification, Tower
from plait.parameters import Shape, parameters


def kept(a: Architecture, p: Pass, *, twice: bool = False) -> dict[str, int]:
    """Bytes by part of the model; with ``twice``, every layer is computed twice and keeps only what it reads."""
    found: dict[str, int] = {}

    def add(part: str, size: int) -> None:
        found[part] = found.get(part, 0) + size

    for tower in a.towers:
        tokens = p.rows * length_of(tower, p)
        add("embedding", embedding(a, p, tokens))
        add("positions", _positions(a, tower, p))
        for turn, kind in enumerate(tower.layers):
            if twice:
                add("layers", tokens * a.d_model * p.w)
            else:
                for part, size in layer(a, tower, kind, tower.schedule[turn], p):
                    add(part, size)
        if a.final_norm:
            add("norms", norm(a, p, tokens * a.d_model, a.d_model, p.w))
        if tower.name == "encoder" and len(a.towers) == 2 and (twice or not p.autocast):
            add("cross", tokens * a.d_model * p.w)  # the memory, once for all layers that read it
    add("head", head(a, p))
    copies = _copies(a, p)
    add("copies of matrices", copies.get("", 0) if twice else sum(copies.values()))
    return {part: size for part, size in found.items() if size}


def largest_layer(a: Architecture, p: Pass) -> int:
    """What one layer keeps, the one that keeps most: it is there beside the rest when layers are computed twice."""
    copies = _copies(a, p)
    return max(
        sum(size for _, size in layer(a, tower, kind, i, p)) + copies.get(f"{tower.name}.layers.{i}", 0)
        for tower in a.towers
        for kind, i in zip(tower.layers, tower.schedule, strict=True)
    )


def embedding(a: Architecture, p: Pass, tokens: int) -> int:
    """What the tables, and what follows them, keep."""
    width = cast(int, a.d_embedding)
    total = tokens * INDEX * (2 if a.position == "learned" and p.masked else 1)
    total += norm(a, p, tokens * width, width, p.w) if a.embedding_norm else 0
    total += tokens * width * p.c if width != a.d_model else 0
    return total + (p.dropped(tokens * a.d_model, p.w) if p.residual else 0)


def head(a: Architecture, p: Pass) -> int:
    """What is kept between the last hidden states and the last projection, whose loss is counted apart."""
    if a.head_transform is None:
        return 0
    pooled = isinstance(a.head, Classification) and a.head.pooling is not None
    rows = p.rows if pooled else round(p.rows * p.length * p.targets)
    width = a.d_model if isinstance(a.head, Classification) else cast(int, a.d_embedding)
    normed = not isinstance(a.head, Classification) or a.head.norm
    made = rows * width * max(KEEPS[a.head_transform], 0 if normed else 1) * p.c
    return rows * a.d_model * p.c + made + (norm(a, p, rows * width, width, p.c) if normed else 0)


def _positions(a: Architecture, tower: Tower, p: Pass) -> int:
    """What layers share: tables of rotations, and biases, which hold the mask."""
    n, rows = length_of(tower, p), p.rows if p.masked else 1
    ropes = {kind.rope for kind in tower.layers if kind.rope is not None}
    total = sum(rows * n * (rope.dim or tower.d_head) * WIDE for rope in ropes)
    if a.relative_bias is None and a.alibi is None:
        return total
    heads = tower.n_heads // p.slices
    times = len(tower.distinct) if a.relative_bias is not None and a.relative_bias.per_layer else 1
    if a.relative_bias is not None:
        total += times * rows * n * n * (INDEX + 1)  # buckets, and who sees whom
    learnt_on_cpu = a.relative_bias is not None and p.device == "cpu"
    return total + (0 if learnt_on_cpu else times * rows * heads * n * n * p.c)


def _copies(a: Architecture, p: Pass) -> dict[str, int]:
    """Under autocast a copy of every matrix of a product, by the layer it is in or ``""``; experts have none."""
    found: dict[str, int] = {}
    for name, shape in parameters(a).items() if p.autocast else ():
        if _copied(name, shape):
            words = name.split(".")
            place = ".".join(words[:3]) if words[1] == "layers" else ""
            found[place] = found.get(place, 0) + prod(shape) * p.c // (p.slices if place else 1)
    return found


def _copied(name: str, shape: Shape) -> bool:
    return multiplies(name) and len(shape) == 2 and not name.endswith(".router.weight") and name != "head.output.weight"
