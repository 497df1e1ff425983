"""Who sees whom: where each token stands in its row, and from that the one boolean mask that attention takes.

Legend: b batch (1 where all rows are alike), n length, q queries, k keys, h heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Places:
    """Where tokens stand. All ``(b, n)`` int64.

    ``positions``: what embeddings, rotations and biases count, possibly the caller's own. ``order``: the running count
    of real tokens, which causality and windows go by, so that padding on either side moves nothing. ``documents``: 0 is
    padding, tokens of one number see each other; ``None`` is one document without padding. ``counted``: positions are
    that count, not the caller's.
    """

    positions: Tensor
    order: Tensor
    documents: Tensor | None = None
    counted: bool = True

    @property
    def regular(self) -> bool:
        """Whether every row is alike: no padding, and nobody's own positions."""
        return self.documents is None and self.counted

    @property
    def real(self) -> Tensor | None:
        """``(b, n)`` boolean, or ``None`` where all are real."""
        return None if self.documents is None else self.documents > 0

    def from_slot(self, start: int) -> Places:
        """The places from a slot on: what a sliding cache still holds."""
        if start == 0:
            return self
        documents = None if self.documents is None else self.documents[:, start:]
        return Places(self.positions[:, start:], self.order[:, start:], documents, self.counted)

    def then(self, later: Places) -> Places:
        """These places and the ``later`` ones behind them."""

        def join(a: Tensor, b: Tensor) -> Tensor:
            rows = len(b) if len(a) == 1 else len(a)
            return torch.cat((a.expand(rows, -1), b.expand(rows, -1)), dim=1)

        documents = None
        if self.documents is not None or later.documents is not None:
            mine, theirs = (torch.ones_like(p.order) if p.documents is None else p.documents for p in (self, later))
            documents = join(mine, theirs)
        counted = self.counted and later.counted
        return Places(join(self.positions, later.positions), join(self.order, later.order), documents, counted)


def in_a_row(start: int, n: int, device: torch.device) -> Places:
    """``n`` real tokens from ``start`` on, every row alike."""
    count = torch.arange(start, start + n, device=device).unsqueeze(0)
    return Places(count, count)


def place(mask: Tensor | None, positions: Tensor | None, n: int, device: torch.device) -> Places:
    """Places of ``n`` tokens from their mask: boolean, True is real; or document numbers, 0 is padding, each document
    counting its positions from 0."""
    if mask is None:
        places = in_a_row(0, n, device)
    else:
        documents = mask.long()
        order = documents.ne(0).cumsum(1).sub(1).clamp(min=0)
        count = order
        if mask.dtype != torch.bool:
            document = documents.cummax(1).values  # padding inside a document does not end it
            begins = document.ne(document.roll(1, dims=1))
            begins[:, 0] = True
            count = order - torch.where(begins, order, 0).cummax(1).values
        places = Places(count, order, documents)
    return places if positions is None else replace(places, positions=positions, counted=False)


def visible(queries: Places, keys: Places, *, causal: bool, window: int | None) -> Tensor | None:
    """What each query may see: ``(b, 1, q, k)`` boolean, or ``None`` for everything.

    A causal query sees itself and what came before, within a window itself and the w - 1 before; a bidirectional one w
    to either side. Padding is seen by nobody and sees nothing.

        causal        window 2      document 1 1 2
        x . .         x . .         x . .
        x x .         x x .         x x .
        x x x         . x x         . . x
    """
    allowed: Tensor | None = None
    if causal or window is not None:
        behind = queries.order.unsqueeze(2) - keys.order.unsqueeze(1)  # b q k
        if causal:
            allowed = behind >= 0 if window is None else (behind >= 0) & (behind < window)
        else:
            assert window is not None
            allowed = behind.abs() <= window
    if keys.documents is not None or queries.documents is not None:
        theirs = torch.ones_like(keys.order) if keys.documents is None else keys.documents
        mine = torch.ones_like(queries.order) if queries.documents is None else queries.documents
        same = (mine.unsqueeze(2) == theirs.unsqueeze(1)) & theirs.ne(0).unsqueeze(1)
        allowed = same if allowed is None else allowed & same
    return None if allowed is None else allowed.unsqueeze(1)
