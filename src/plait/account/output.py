"""Output: the last projection and its loss, which are computed a few rows at a time (``training/output_loss.py``).

Legend: r rows that are asked something, v outputs, w width, k rows of a chunk.
"""

from __future__ import annotations

from typing import cast

from plait.account.passes import WIDE, Pass
from plait.architecture import Architecture, Classification

CHUNK, LEAST = 1 << 21, 128  # logits at once, and the fewest rows: as in training/output_loss.py


def loss_peak(a: Architecture, p: Pass) -> int:
    """The most bytes that come and go with the loss, beside what the pass keeps.

    The gradients of ``(r, w)`` rows and the ``(v, w)`` matrix are made with the loss. While they are, there are a
    chunk's ``(k, v)`` logits and their logarithms; when backward begins, a copy of those gradients.
    """
    if a.head is None:
        return 0
    labels = a.head.labels if isinstance(a.head, Classification) else None
    whole = isinstance(a.head, Classification) and a.head.pooling is not None
    r = p.rows if whole else max(1, round(p.rows * p.length * p.targets))
    v, w = labels or a.vocab_size, a.d_model if labels or not a.head_transform else cast(int, a.d_embedding)
    learns = p.learns("embedding.tokens.weight" if a.tied else "head.output.weight")
    made = r * w * p.c + (v * w * p.c if learns else 0)
    k, half = min(r, max(LEAST, CHUNK // v)), p.c != WIDE
    chunk = k * v * (2 * WIDE + (2 * p.c if half else 0))
    chunk += v * w * ((WIDE if learns and half else 0) + (p.c if p.autocast else 0))
    return made + max(chunk, made)
