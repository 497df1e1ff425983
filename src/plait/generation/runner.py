"""Runner: what generation drives. Tokens in, logits out, with a cache that the runner makes and only it looks into.

The plain model is one, through ``ModelRunner``; anything with the members of ``Runner`` is another.
"""

# b rows, n tokens

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.families.binding import few
from plait.generation.errors import GenerationError

if TYPE_CHECKING:
    from plait.model import Cache, Transformer


class RunnerCache(Protocol):
    """What generation itself asks of a cache; the rest is between it and its runner."""

    @property
    def lengths(self) -> Tensor:
        """Real tokens in each row, ``(b,)`` int64."""
        ...

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was; rows may repeat or be left out."""
        ...

    def truncate(self, lengths: int | Tensor) -> None:
        """Forget all but the first ``lengths`` tokens of each row; ``ValueError`` where they are no longer held."""
        ...

    def fork(self, n: int) -> Self:
        """A cache of its own in which every row stands ``n`` times."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """What one sequence reads in a pass: new tokens behind what its own cache, of one row, holds."""

    tokens: Sequence[int]
    cache: Any
    all_logits: bool = False  # after every token, not only the last
    source: Sequence[int] | None = None  # what an encoder reads, with the first tokens only
    positions: Sequence[int] | None = None  # of the tokens, where they do not go on from the last one's


class Runner(Protocol):
    """A model that reads tokens once and remembers them in a cache."""

    architecture: Architecture
    device: torch.device

    @property
    def identity(self) -> str:
        """Of the weights: another whenever they are others, changed in place or replaced."""
        ...

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

    def advance(self, reads: Sequence[Read]) -> list[Tensor]:
        """Any number of sequences read on, each in its own cache of one row: logits ``(1, vocab)`` after the last
        token of each, or ``(n, vocab)`` where it asks for all."""
        ...


def check_runner(runner: Any, architecture: Architecture | None = None) -> None:
    """``GenerationError`` where ``runner`` is something else, or is of another ``architecture`` than the checkpoint."""
    if not hasattr(runner, "advance"):
        raise GenerationError(
            f"runner: {type(runner).__name__} is no runner; give plait.optimize(checkpoint), or "
            "plait.generation.ModelRunner(checkpoint.model)."
        )
    if architecture is not None and (other := runner.architecture.difference(architecture)):
        raise GenerationError(
            f"runner: its architecture is not the checkpoint's, they differ in {few(sorted(other))}; give "
            "plait.optimize(checkpoint)."
        )


def check_in_memory(what: str, model: Transformer, instead: str) -> None:
    """``GenerationError`` for a model on the meta device, which has nothing to compute with."""
    if next(model.parameters()).is_meta:
        raise GenerationError(
            f"{what}: the weights are not in memory (lazy=True, or device='meta'); give {instead}, or load them."
        )


_identities = itertools.count()


class ModelRunner:
    """The plain model as a runner. ``GenerationError`` for one on the meta device."""

    def __init__(self, model: Transformer) -> None:
        check_in_memory("model", model, "runner=plait.optimize(checkpoint)")
        self.model = model
        self.architecture: Architecture = model.architecture
        weight = next(model.parameters())
        self.device, self.dtype = weight.device, weight.dtype
        self._known: list[tuple[Tensor, Tensor, int]] = []  # each weight, its storage, the version of it
        self._identity = ""

    @property
    def identity(self) -> str:
        """See ``Runner``. A number that no other state of any weights had: it is a new one when a tensor is another
        object, lies elsewhere, or was written to by torch since the last look; and always while somebody watches the
        model, who may change what it computes. What is written through ``weight.data[...]`` torch itself does not see.
        """
        if _watched(self.model):
            self._known, self._identity = [], f"model {next(_identities)}"
            return self._identity
        weights = (*self.model.parameters(), *self.model.buffers())
        now = [(weight, weight.detach(), _version(weight)) for weight in weights]
        if len(now) != len(self._known) or not all(map(_same, now, self._known)):
            # Held until the next look, so that nothing else can be given the same address.
            self._known, self._identity = now, f"model {next(_identities)}"
        return self._identity

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

    @torch.inference_mode()
    def advance(self, reads: Sequence[Read]) -> list[Tensor]:
        """See ``Runner``. One pass of the model for each."""
        return [self._advance(read) for read in reads]

    def _advance(self, read: Read) -> Tensor:
        def row(ids: Sequence[int] | None) -> Tensor | None:
            return None if ids is None else torch.tensor([list(ids)], device=self.device)

        tokens = row(read.tokens)
        assert tokens is not None
        source, positions = row(read.source), row(read.positions)
        last = not read.all_logits
        return self.model(tokens, source=source, positions=positions, cache=read.cache, last_only=last)[0]


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version


def _same(now: tuple[Tensor, Tensor, int], known: tuple[Tensor, Tensor, int]) -> bool:
    return now[0] is known[0] and now[1].data_ptr() == known[1].data_ptr() and now[2] == known[2]


def _watched(model: Transformer) -> bool:
    from plait.model.sites import Part

    return any(part.watched(*part.sites) for part in model.modules() if isinstance(part, Part))
