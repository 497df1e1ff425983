"""Runner: what generation drives. Tokens in, logits out, with a cache that the runner makes and only it looks into.

The plain model is one, through ``ModelRunner``; anything with these four members is another.
"""

# b rows, n tokens

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from plait.architecture import Architecture

if TYPE_CHECKING:
    from plait.model import Cache, Transformer


class RunnerCache(Protocol):
    """What generation itself asks of a cache; the rest is between it and its runner."""

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was; rows may repeat or be left out."""
        ...


class Runner(Protocol):
    """A model that reads tokens once and remembers them in a cache."""

    architecture: Architecture
    device: torch.device

    def cache(self, batch: int, *, capacity: int | None = None, total_lengths: Sequence[int] | None = None) -> Any:
        """An empty ``RunnerCache``: room for ``capacity`` tokens a row, padding included (``None``: it grows), and each
        row's declared length in the end, by which a scaling that depends on length is chosen."""
        ...

    def prefill(
        self,
        tokens: Tensor,
        cache: Any,
        *,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        positions: Tensor | None = None,
        last_only: bool = True,
    ) -> Tensor:
        """Read ``(b, n)`` tokens behind what the cache holds; logits ``(b, n, vocab)``, or with ``last_only`` those at
        each row's last real token ``(b, 1, vocab)``. The source goes with the first call only."""
        ...

    def step(self, tokens: Tensor, cache: Any) -> Tensor:
        """Read one token a row, ``(b,)``; logits ``(b, vocab)``."""
        ...


class ModelRunner:
    """The plain model as a runner."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.architecture: Architecture = model.architecture
        weight = next(model.parameters())
        self.device, self.dtype = weight.device, weight.dtype

    def cache(self, batch: int, *, capacity: int | None = None, total_lengths: Sequence[int] | None = None) -> Cache:
        """See ``Runner``."""
        from plait.model import Cache

        totals = None if total_lengths is None else torch.tensor(total_lengths, device=self.device)
        return Cache(
            self.architecture,
            batch,
            dtype=self.dtype,
            device=self.device,
            capacity=capacity,
            total_lengths=totals,
        )

    @torch.inference_mode()
    def prefill(
        self,
        tokens: Tensor,
        cache: Cache,
        *,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        positions: Tensor | None = None,
        last_only: bool = True,
    ) -> Tensor:
        """See ``Runner``."""
        return self.model(
            tokens,
            mask=mask,
            source=source,
            source_mask=source_mask,
            positions=positions,
            cache=cache,
            last_only=last_only,
        )

    @torch.inference_mode()
    def step(self, tokens: Tensor, cache: Cache) -> Tensor:
        """See ``Runner``."""
        return self.model(tokens[:, None], cache=cache)[:, -1]
