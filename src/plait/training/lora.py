"""LoRA: low-rank matrices trained beside frozen ones, put around a model from outside (Hu et al. 2021, eq. 3).

``attach`` hangs an ``adapter`` on each chosen ``Linear``, as a child whose output a hook adds: the model's own code and
parameters stay what they are, and ``detach`` leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from plait.checkpoint.adapter import Adapter, AdapterError, LowRank
from plait.checkpoint.notice import notice
from plait.model import Transformer
from plait.model.linear import Linear
from plait.words import nearest

CHILD = "adapter"
ATTENTION, FEED_FORWARD = ("query", "key", "value", "output"), ("gate", "up", "down")
TARGETS = (*ATTENTION, *FEED_FORWARD)  # of every tower: attention, cross-attention, and what experts share


class Beside(nn.Module):
    """``scale * up(down(dropout(x)))``, computed in its own type, which is float32 at least."""

    def __init__(self, update: LowRank, dropout: float) -> None:
        super().__init__()
        self.down, self.up = nn.Parameter(update.down), nn.Parameter(update.up)
        self.scale, self.dropout = update.scale, dropout

    def forward(self, x: Tensor) -> Tensor:
        """``(..., in)`` -> ``(..., out)``, in the type of ``x``."""
        wide = F.dropout(x.to(self.down.dtype), self.dropout, self.training)
        return (F.linear(F.linear(wide, self.down), self.up) * self.scale).to(x.dtype)


@dataclass(frozen=True)
class Attached:
    """Adapters on a model. ``names``: of the matrices; ``whole``: parameters trained in full, as they were before."""

    model: Transformer
    names: tuple[str, ...]
    whole: Mapping[str, Tensor]
    dropout: float
    frozen: Mapping[str, bool]  # whether each parameter took gradients before
    hooks: tuple[RemovableHandle, ...]

    def adapter(self, whole: Callable[[str, Tensor], Tensor] = lambda name, value: value) -> Adapter:
        """A copy of what was trained; ``whole`` puts a parameter together where processes have parts of it."""

        def copy(name: str) -> Tensor:
            return whole(name, self.model.get_parameter(name).detach()).clone()

        updates = {}
        for name in self.names:
            place = f"{name.removesuffix('.weight')}.{CHILD}"
            scale: float = self.model.get_submodule(place).scale  # type: ignore[assignment]
            updates[name] = LowRank(copy(f"{place}.down"), copy(f"{place}.up"), scale)
        return Adapter(updates=updates, whole={name: copy(name) for name in self.whole}, dropout=self.dropout)

    def detach(self) -> None:
        """The model as it was: no adapters, what was trained in full put back, all parameters as free as before."""
        for hook in self.hooks:
            hook.remove()
        for name in self.names:
            delattr(self.model.get_submodule(name.removesuffix(".weight")), CHILD)
        for name, value in self.whole.items():
            self.model.get_parameter(name).data = value
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(self.frozen[name])


def attach(
    model: Transformer,
    *,
    rank: int,
    alpha: float = 16.0,
    dropout: float = 0.0,
    targets: Sequence[str] | None = None,
    whole: Sequence[str] = (),
    seed: int = 0,
) -> Attached:
    """Freeze a model and give it fresh adapters, which change nothing yet: ``down`` is drawn, ``up`` is 0.

    Args:
        model: in memory.
        rank: columns of the low-rank matrices. alpha: their product is scaled by ``alpha / rank``.
        dropout: share of their input that is dropped in training.
        targets: which ``Linear``, by the ends of their names, ``*`` for any one word: ``query``, ``cross.value``,
            ``layers.3.ffn.*``. ``None``: all projections of attention and feed-forward layers, in every tower.
        whole: parameters to train in full beside them, by the same patterns for themselves or for what they are part
            of: ``head.*`` for a new head.
        seed: of the numbers drawn.

    Raises ``AdapterError`` for a pattern that matches nothing, and where adapters are attached already.
    """
    if rank < 1:
        raise AdapterError(f"rank: {rank} columns are none; give at least 1.")
    linears = _linears(model)
    names = _default(model, linears) if targets is None else _matching(targets, list(linears), model)
    generator = torch.Generator().manual_seed(seed)
    updates = {}
    for name in names:
        out, width = linears[name].weight.shape
        wide = torch.promote_types(linears[name].weight.dtype, torch.float32)
        drawn = torch.empty(rank, width, dtype=wide).uniform_(-(width**-0.5), width**-0.5, generator=generator)
        updates[f"{name}.weight"] = LowRank(drawn, torch.zeros(out, rank, dtype=wide), alpha / rank)
    own = {name: parameter for name, parameter in model.named_parameters()}
    trained = {name: own[name].detach().clone() for name in (_matching(whole, list(own), model) if whole else [])}
    return put(model, Adapter(updates=updates, whole=trained, dropout=dropout))


def adapted_shapes(model: Transformer, rank: int, targets: Sequence[str] | None) -> dict[str, tuple[int, int]]:
    """Name and shape of every parameter that ``attach`` would add to a model, which may be empty (on meta)."""
    linears = _linears(model)
    shapes: dict[str, tuple[int, int]] = {}
    for name in _default(model, linears) if targets is None else _matching(targets, list(linears), model):
        out, width = linears[name].weight.shape
        shapes |= {f"{name}.{CHILD}.down": (rank, width), f"{name}.{CHILD}.up": (out, rank)}
    return shapes


def put(model: Transformer, adapter: Adapter) -> Attached:
    """Freeze a model and give it this adapter, to train on or to compute with; the adapter's tensors are copied.

    Raises ``AdapterError`` where it does not fit, where it changes something that is no ``Linear`` (``merge`` can), and
    where adapters are attached already.
    """
    linears, own = _linears(model), dict(model.named_parameters())
    if any(f".{CHILD}." in name for name in own):
        raise AdapterError("adapter: this model has adapters already; detach them first.")
    if any(parameter.is_meta for parameter in own.values()):
        raise AdapterError("adapter: the weights beside it are not in memory; load without lazy or meta.")
    adapter.check({name: tuple(parameter.shape) for name, parameter in own.items()})
    if other := [name for name in adapter.updates if name.removesuffix(".weight") not in linears]:
        raise AdapterError(
            f"adapter: {other[0]} is no Linear, beside which an update can be computed; merge it instead."
        )
    frozen = {name: parameter.requires_grad for name, parameter in own.items()}
    model.requires_grad_(False)
    before = {name: own[name].data for name in adapter.whole}
    for name, value in adapter.whole.items():  # in memory of its own: what is there may be a mapped file's
        own[name].data = value.detach().to(own[name].device, own[name].dtype, copy=True)
        own[name].requires_grad_()
    hooks = []
    for name, update in adapter.updates.items():
        linear = linears[name.removesuffix(".weight")]
        wide = torch.promote_types(linear.weight.dtype, torch.float32)
        place = linear.weight.device
        down, up = (part.detach().to(place, wide, copy=True) for part in (update.down, update.up))
        linear.add_module(CHILD, Beside(LowRank(down, up, update.scale), adapter.dropout).train(linear.training))
        hooks.append(linear.register_forward_hook(_add))
    return Attached(model, tuple(adapter.updates), before, adapter.dropout, frozen, tuple(hooks))


def _add(linear: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output + linear.get_submodule(CHILD)(inputs[0])


def _linears(model: nn.Module) -> dict[str, Linear]:
    return {name: module for name, module in model.named_modules() if isinstance(module, Linear)}


def _default(model: Transformer, linears: Mapping[str, Linear]) -> list[str]:
    if model.architecture.experts is not None:
        notice("LoRA: the experts' matrices are left as they are; attention and what all tokens take are adapted.")
    return [name for name in linears if name.rpartition(".")[2] in TARGETS and ".layers." in name]


def _matching(patterns: Sequence[str], names: Sequence[str], model: nn.Module) -> list[str]:
    """The names whose last words fit one of the patterns, in their order; every pattern fits some."""
    for pattern in patterns:
        if not any(_fits(name, pattern) for name in names):
            if any(_fits(name.rpartition(".")[0], pattern) for name, _ in model.named_parameters()):
                raise AdapterError(f"{pattern!r}: what is called so in this model is no Linear, and cannot be adapted.")
            near = nearest(pattern, {end for name in names for end in _ends(name)})
            raise AdapterError(
                f"{pattern!r}: nothing in this model is called so" + (f"; did you mean {near!r}?" if near else ".")
            )
    return [name for name in names if any(_fits(name, pattern) for pattern in patterns)]


def _fits(name: str, pattern: str) -> bool:
    """Whether the last words are those of the pattern; a parameter's own, weight or bias, need not be said."""
    words, wanted = name.removesuffix(".weight").removesuffix(".bias").split("."), pattern.split(".")
    if wanted[-1] in ("weight", "bias"):
        words = name.split(".")
    return len(wanted) <= len(words) and all(map(fnmatchcase, words[-len(wanted) :], wanted))


def _ends(name: str) -> list[str]:
    words = name.split(".")
    return [".".join(words[-n:]) for n in (1, 2)]
