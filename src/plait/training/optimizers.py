"""Optimizers: AdamW for every parameter, or Muon for hidden matrices and AdamW for the rest; parameters go by name.

Who goes where is read from names (``model/initialization.role_of``):

    Muon, decayed     matrices of two dimensions in a tower: query key value output gate up down
    AdamW, decayed    tables, heads, routers, adapters, and the matrices of experts, which are one tensor of three
                      dimensions that torch's Muon does not take; without Muon, all matrices
    AdamW             norms, biases, sinks, relative biases
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from plait.model.initialization import role_of
from plait.training.muon import Muon
from plait.training.settings import Optimizer as Settings

HIDDEN = frozenset({"query", "key", "value", "output", "up", "down"})  # roles of matrices between hidden states

Group = Literal["muon", "decayed", "plain"]


def group_of(name: str, parameter: Tensor, kind: Literal["adamw", "muon"] = "adamw") -> Group:
    """Which of the three groups a parameter belongs to."""
    if parameter.ndim < 2 or name.endswith("bias") or "norm" in name or role_of(name) == "relative_bias":
        return "plain"
    hidden = parameter.ndim == 2 and role_of(name) in HIDDEN and name.startswith(("encoder.", "decoder."))
    return "muon" if kind == "muon" and hidden else "decayed"


@dataclass(frozen=True)
class Part:
    """One torch optimizer of one group: its parameters by name and its whole learning rate."""

    group: Group
    parameters: Mapping[str, Tensor]
    torch: torch.optim.Optimizer
    lr: float


class Optimizer:
    """Torch's optimizers over named parameters, moved by one share of their learning rates.

    Args:
        parameters: what is trained, by name; those without ``requires_grad`` are left out, and a tensor that has two
            names counts under its first.
        settings: the recipe's [optimizer].
    """

    def __init__(self, parameters: Iterable[tuple[str, Tensor]], settings: Settings) -> None:
        groups: dict[Group, dict[str, Tensor]] = {"muon": {}, "decayed": {}, "plain": {}}
        seen: set[int] = set()
        for name, parameter in parameters:
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                groups[group_of(name, parameter, settings.kind)][name] = parameter
        if not seen:
            raise ValueError("there is nothing to train: no parameter takes a gradient.")
        self.parts = [_part(group, members, settings) for group, members in groups.items() if members]

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Everything that is trained, by name."""
        return {name: parameter for part in self.parts for name, parameter in part.parameters.items()}

    def step(self, share: float) -> None:
        """Move every parameter by its gradient, at ``share`` of the learning rates."""
        for part in self.parts:
            for group in part.torch.param_groups:
                group["lr"] = part.lr * share
            part.torch.step()

    def forget_gradients(self) -> None:
        """No parameter has a gradient any more."""
        for part in self.parts:
            part.torch.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """What it remembers, as ``parameter's name:what``; the tensors themselves, not copies."""
        return {
            f"{name}:{what}": value if isinstance(value, Tensor) else torch.tensor(value)
            for part in self.parts
            for name, parameter in part.parameters.items()
            for what, value in part.torch.state.get(parameter, {}).items()
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Remember what ``state`` says instead; it is copied.

        Raises ``ValueError`` where it lacks a parameter, has one that is not trained here, or one of another shape.
        """
        found: dict[str, dict[str, Tensor]] = {}
        for key, value in state.items():
            name, _, what = key.rpartition(":")
            found.setdefault(name, {})[what] = value
        own = self.parameters
        if state and (lost := sorted(own.keys() - found.keys())):
            raise ValueError(f"{lost[0]}: the saved optimizer does not know this parameter ({len(lost)} such in all).")
        if strange := sorted(found.keys() - own.keys()):
            raise ValueError(f"{strange[0]}: the saved optimizer moved it, and it is not trained now.")
        for part in self.parts:
            part.torch.state.clear()
            expected = _MEMORY[type(part.torch)]
            for name, parameter in part.parameters.items():
                memory = found.get(name, {})
                if memory and memory.keys() != expected:
                    words = ", ".join(sorted(memory))
                    raise ValueError(
                        f"{name}: another optimizer wrote its state ({words}); keep [optimizer] as it was."
                    )
                for what, value in memory.items():
                    if value.ndim and value.shape != parameter.shape:
                        shapes = f"{list(value.shape)}, and the parameter is {list(parameter.shape)}"
                        raise ValueError(f"{name}: its saved {what} is {shapes}.")
                    part.torch.state[parameter][what] = value.to(parameter.device, copy=True)


_MEMORY = {torch.optim.AdamW: {"step", "exp_avg", "exp_avg_sq"}, Muon: {"momentum_buffer"}}


def _part(group: Group, members: Mapping[str, Tensor], settings: Settings) -> Part:
    tensors = list(members.values())
    if group == "muon":
        muon = Muon(
            tensors, lr=settings.matrix_lr, weight_decay=settings.matrix_weight_decay, momentum=settings.momentum
        )
        return Part(group, members, muon, settings.matrix_lr)
    adamw = torch.optim.AdamW(
        tensors,
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        weight_decay=settings.weight_decay if group == "decayed" else 0.0,
        fused=True,
    )
    return Part(group, members, adamw, settings.lr)
