"""Networks: a feed-forward network as a memory, ``sum_i act(x . k_i) v_i`` (Geva et al. 2021, eq. 2), of any kind:
gated, with biases, or one of many experts.

Legend: n places, m neurons, w width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.model.experts import Experts
from plait.model.feedforward import FeedForward


@dataclass(frozen=True, kw_only=True, eq=False)
class Memories:
    """Neurons of one network: what each counts at each place, ``coefficients`` ``(n, m)``, and what it then adds,
    ``values`` ``(m, w)``. ``name`` is the network's, and ``bias`` ``(w,)`` what it adds ``shares`` ``(n, 1)`` times."""

    name: str
    coefficients: Tensor
    values: Tensor
    bias: Tensor | None
    shares: Tensor

    @property
    def names(self) -> list[str]:
        """A name for each neuron."""
        return [f"{self.name}.neurons.{i}" for i in range(len(self.values))]

    def output(self) -> Tensor:
        """The sum over all neurons, and the bias: ``(n, w)``."""
        made = self.coefficients @ self.values
        return made if self.bias is None else made + self.shares * self.bias


def values(ffn: FeedForward | Experts, name: str) -> Iterator[tuple[str, Tensor]]:
    """The values ``(m, w)`` of every network that makes up a sublayer, by its name."""
    if isinstance(ffn, FeedForward):
        yield name, ffn.down.weight.detach().t()
        return
    for expert, weight in enumerate(ffn.experts.down.weight.detach()):
        yield f"{name}.experts.{expert}", weight.t()
    if ffn.shared is not None:
        yield f"{name}.shared", ffn.shared.down.weight.detach().t()


def memories(ffn: FeedForward | Experts, seen: Mapping[str, Tensor], name: str) -> Iterator[Memories]:
    """The networks that make up a sublayer, which add up to what it gives.

    Args:
        ffn: the sublayer, ``name`` what it is called among the sites.
        seen: values without a batch: ``activation`` ``(n, m)``, of experts ``(n, k, m)`` and ``routes`` ``(n, e)``.
    """
    if isinstance(ffn, FeedForward):
        fired = seen[f"{name}.activation"]
        yield _network(name, fired, ffn, fired.new_ones(len(fired), 1))
        return
    fired, routes = seen[f"{name}.activation"], seen[f"{name}.routes"]
    picked = routes != 0
    slots = picked.cumsum(-1) - 1  # of an expert among those of its token, which stand in order
    down = ffn.experts.down
    for expert in picked.any(0).nonzero()[:, 0].tolist():
        mine = picked[:, expert : expert + 1]
        slot = slots[:, expert].clamp(min=0)
        own = fired[torch.arange(len(fired), device=fired.device), slot]
        shares = (routes[:, expert : expert + 1] * mine).to(fired.dtype)
        bias = None if down.bias is None else down.bias[expert]
        yield Memories(
            name=f"{name}.experts.{expert}",
            coefficients=own * shares,
            values=down.weight[expert].t(),
            bias=bias,
            shares=shares,
        )
    if ffn.shared is not None:
        fired = seen[f"{name}.shared.activation"]
        one = fired.new_ones(len(fired), 1)
        yield _network(
            f"{name}.shared", fired, ffn.shared, one if ffn.shared_gate is None else seen[f"{name}.shared_scale"]
        )


def _network(name: str, fired: Tensor, ffn: FeedForward, shares: Tensor) -> Memories:
    return Memories(
        name=name, coefficients=fired * shares, values=ffn.down.weight.t(), bias=ffn.down.bias, shares=shares
    )
