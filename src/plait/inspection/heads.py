"""Heads: what each attention head looks at, in a few numbers.

Legend: h heads, q queries, k keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.inspection.reading import Reading
from plait.inspection.trace import Trace, trace


@dataclass(frozen=True, kw_only=True)
class HeadLine:
    """One head over one row, means over its queries.

    ``entropy`` is in nats, ``distance`` in tokens from the query back to what it sees. ``previous`` and ``first`` are
    the shares that the token before and the row's first token get; ``induction`` that of tokens which came after an
    earlier occurrence of the query's token (Olsson et al. 2022), over queries that have one, ``None`` where none has.
    Of cross-attention the last four are ``None``.
    """

    name: str
    head: int
    entropy: float
    distance: float | None = None
    previous: float | None = None
    first: float | None = None
    induction: float | None = None


def heads(seen: Trace) -> Iterator[HeadLine]:
    """A line for each head whose pattern was kept."""
    for name, pattern in seen.items():
        if not name.endswith(".pattern"):
            continue
        path = name.removesuffix(".pattern")
        entropy = -(pattern * pattern.clamp(min=1e-30).log()).sum(-1).mean(-1)  # h
        if path.endswith(".cross"):
            yield from (HeadLine(name=path, head=i, entropy=float(value)) for i, value in enumerate(entropy))
            continue
        tower = path.partition(".")[0]
        reading = seen.reading
        ids = reading.source if tower == "encoder" and reading.source is not None else reading.tokens
        yield from _within(path, pattern, entropy, ids[0])


def _within(path: str, pattern: Tensor, entropy: Tensor, ids: Tensor) -> Iterator[HeadLine]:
    n = len(ids)
    place = torch.arange(n, device=ids.device)
    away = (place[:, None] - place).abs().to(pattern.dtype)
    after = torch.zeros(n, n, dtype=torch.bool, device=ids.device)  # q k: k - 1 is an earlier occurrence of q's token
    after[:, 1:] = (ids[:, None] == ids)[:, :-1]
    after &= place <= place[:, None]
    repeats = after.any(-1)
    for head, shares in enumerate(pattern):
        yield HeadLine(
            name=path,
            head=head,
            entropy=float(entropy[head]),
            distance=float((shares * away).sum(-1).mean()),
            previous=float(shares.diagonal(-1).mean()) if n > 1 else None,
            first=float(shares[1:, 0].mean()) if n > 1 else None,
            induction=float((shares * after).sum(-1)[repeats].mean()) if bool(repeats.any()) else None,
        )


def induction(checkpoint: Checkpoint, *, length: int = 50, seed: int = 0) -> Iterator[HeadLine]:
    """A line for each head of a decoder over ``length`` random tokens that are said twice, fewer where there are not so
    many positions: a head that goes on with what it saw has an induction score near 1 (Olsson et al. 2022)."""
    a = checkpoint.architecture
    length = min(length, (a.max_length or 2 * length) // 2)
    generator = torch.Generator().manual_seed(seed)
    once = torch.randint(0, a.vocab_size, (length,), generator=generator)
    tokens = torch.cat((once, once))[None].to(next(checkpoint.model.parameters()).device)
    reading = Reading(tokens=tokens, texts=tuple(map(str, tokens[0].tolist())))
    yield from heads(trace(checkpoint, reading, "*.attention.pattern"))
