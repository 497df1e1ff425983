"""Adapter: what fine-tuning added to a checkpoint, as low-rank updates of its matrices; and their sum, with its loss.

Hu et al. 2021, eq. 3: ``W x + alpha / r * B A x``; here ``A`` ``(r, in)`` is ``down`` and ``B`` ``(out, r)`` is ``up``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from plait.checkpoint.notice import CheckpointError, notice

if TYPE_CHECKING:
    from plait.checkpoint.record import Checkpoint

SILENT = 0.1  # the share of an update that rounding may take without being asked


class AdapterError(CheckpointError):
    """An adapter that cannot be read, written, or does not fit; the message says which part and why."""


@dataclass(frozen=True)
class LowRank:
    """An update of one matrix: ``scale * up @ down``, ``down`` ``(r, in)``, ``up`` ``(out, r)``."""

    down: Tensor
    up: Tensor
    scale: float

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        return self.up.shape[0], self.down.shape[1]

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The whole update, ``(out, in)``, multiplied in ``dtype``."""
        return self.scale * (self.up.detach().to(dtype) @ self.down.detach().to(dtype))


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """``updates``: by the canonical name of the matrix. ``whole``: parameters that were trained in full, a head's, say,
    and take the place of those there. ``dropout``: the share of the updates' input that was dropped in training."""

    updates: Mapping[str, LowRank]
    whole: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    dropout: float = 0.0

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """``AdapterError`` unless every part has its place among parameters of these shapes, and there is one."""
        if not self.updates and not self.whole:
            raise AdapterError("adapter: it changes nothing; there is no update in it.")
        for name, shape in {
            **{name: update.shape for name, update in self.updates.items()},
            **{name: tuple(value.shape) for name, value in self.whole.items()},
        }.items():
            if name not in shapes:
                raise AdapterError(f"adapter: it changes {name}, which this model does not have.")
            if shapes[name] != shape:
                raise AdapterError(f"adapter: it has {name} as {shape}; in this model it is {shapes[name]}.")


@dataclass(frozen=True)
class Merged:
    """How much of an adapter rounding took: the norm of what is lost, as a share of the norm of all updates.

    ``worst`` is the matrix that lost the largest share of its own, and that share.
    """

    lost: float
    worst: tuple[str, float]


@torch.no_grad()
def merge(checkpoint: Checkpoint, adapter: Adapter, *, lossy: bool = False) -> Merged:
    """Add an adapter to a checkpoint's weights for good, in its model, and say what was lost.

    The sum is made in float32 (float64 for float32 and float64 weights) and rounded once, to the type each matrix has
    or, if that is narrower, will be saved in. Nothing is changed where it raises.

    Args:
        checkpoint: its model is in memory.
        adapter: what to add.
        lossy: go on where rounding takes more than a tenth of the update, which is then said aloud.

    Raises ``AdapterError`` where the adapter does not fit, and where too much is lost.
    """
    own = dict(checkpoint.model.named_parameters())
    if any(parameter.is_meta for parameter in own.values()):
        raise AdapterError("adapter: it is added to weights in memory, and these are not; load without lazy or meta.")
    adapter.check({name: tuple(parameter.shape) for name, parameter in own.items()})
    found = _measure(checkpoint, own, adapter)
    if found.lost > SILENT:
        name, share = found.worst
        told = f"adapter: rounding takes {found.lost:.0%} of the update (of {name} {share:.0%})"
        if not lossy:
            raise AdapterError(
                f"{told}; load with dtype='float32', which keeps it, or ask for a narrower type by name to lose it."
            )
        notice(f"{told}.")
    for name, update in adapter.updates.items():
        _put(checkpoint.model, name, _sum(own[name], update).to(own[name].dtype))
    for name, value in adapter.whole.items():
        _put(checkpoint.model, name, value.detach().to(own[name].device, own[name].dtype, copy=True))
    return found


def _measure(checkpoint: Checkpoint, own: Mapping[str, Tensor], adapter: Adapter) -> Merged:
    lost, asked = 0.0, 0.0
    worst = ("", 0.0)
    for name, update in adapter.updates.items():
        exact = _sum(own[name], update)
        kept = checkpoint.layout.kept(name, own[name].dtype)
        narrow = kept if kept.itemsize < own[name].dtype.itemsize else own[name].dtype
        missed = float((exact.to(narrow).to(exact.dtype) - exact).norm()) ** 2
        whole = float(update.dense(exact.dtype).norm()) ** 2
        lost, asked = lost + missed, asked + whole
        share = math.sqrt(missed / whole) if whole else 0.0
        worst = max(worst, (name, share), key=lambda pair: pair[1])
    return Merged(math.sqrt(lost / asked) if asked else 0.0, worst)


def _sum(weight: Tensor, update: LowRank) -> Tensor:
    wide = torch.float64 if weight.dtype.itemsize >= 4 else torch.float32
    return weight.detach().to(wide) + update.dense(wide).to(weight.device)


def _put(model: nn.Module, name: str, value: Tensor) -> None:
    """A new tensor in a parameter's place: the old one may be a mapped file's, which is not written to."""
    path, _, leaf = name.rpartition(".")
    module = model.get_submodule(path)
    old = getattr(module, leaf)
    setattr(module, leaf, nn.Parameter(value, requires_grad=old.requires_grad))
