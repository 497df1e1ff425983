"""Agreement: what the values of neurons say beside what was asked where they fire most (Geva et al. 2021, section 4.2).

Legend: m neurons of a network, t triggers, k tokens of a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.inspection.memory.corpus import Lane
from plait.inspection.memory.reading import Reader
from plait.inspection.memory.survey import Triggers

RELUS = ("relu", "relu2")


@dataclass(frozen=True, kw_only=True, eq=False)
class Neurons:
    """All that is known of one network's neurons.

    Args:
        name: the network's; ``tower`` and ``turn`` are its layer's.
        triggers: see ``Triggers``; ``asked`` ``(m, t)`` the token that was asked at each, -1 where there is none.
        raised: ``(m, k)`` the tokens that a value makes likelier where its coefficient is positive, the most first;
            ``lowered``: where it is negative, ``(m, 0)`` where it never is. ``pushes`` and ``pulls``: how far each is
            above the mean of all tokens, in their standard deviations.
        ranks: ``(m,)`` of what the strongest trigger was asked, among all tokens as the value ranks them there; from 1,
            0 where nothing was asked.
        sizes: ``(m,)`` the values' norms.
    """

    name: str
    tower: str
    turn: int
    triggers: Triggers
    asked: Tensor
    raised: Tensor
    pushes: Tensor
    lowered: Tensor
    pulls: Tensor
    ranks: Tensor
    sizes: Tensor

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def said(self) -> Tensor:
        """The token that the value says first at each trigger, ``(m, t)``."""
        first = self.raised[:, :1]
        other = self.lowered[:, :1] if self.lowered.shape[1] else first
        return torch.where(self.triggers.strengths < 0, other, first)

    @property
    def agrees(self) -> Tensor:
        """Where that is what was asked, ``(m, t)``."""
        return (self.said == self.asked) & (self.asked >= 0)


def neurons(
    reader: Reader, lane: Lane, turn: int, name: str, values: Tensor, triggers: Triggers, k: int = 10
) -> Neurons:
    """Read the ``values`` ``(m, w)`` of a network whose ``triggers`` are known."""
    asked = lane.targets(triggers.places)
    signs = torch.where(triggers.strengths[:, 0] < 0, -1.0, 1.0)
    both = not never_negative(reader.model.architecture)
    raised, lowered, ranks, done = list[Tensor](), list[Tensor](), list[Tensor](), 0
    pushes, pulls = list[Tensor](), list[Tensor]()
    k = min(k, len(reader.table))
    for scores in reader.scores(turn, values):
        spread, mean = torch.std_mean(scores, -1, correction=0, keepdim=True)
        spread = spread.clamp(min=1e-30)
        at = slice(done, done + len(scores))
        most, ids = scores.topk(k)
        raised.append(ids.cpu())
        pushes.append(((most - mean) / spread).cpu())
        if both:
            least, ids = scores.topk(k, largest=False)
            lowered.append(ids.cpu())
            pulls.append(((mean - least) / spread).cpu())
        first, sign = asked[at, :1].to(scores.device), signs[at, None].to(scores)
        mine = scores.gather(1, first.clamp(min=0))
        above = ((scores * sign) > (mine * sign)).sum(1) + 1
        ranks.append(torch.where(first[:, 0] < 0, 0, above).cpu())
        done += len(scores)
    none = torch.empty(len(values), 0)
    return Neurons(
        name=name,
        tower=reader.tower,
        turn=turn,
        triggers=triggers,
        asked=asked,
        raised=torch.cat(raised),
        pushes=torch.cat(pushes),
        lowered=torch.cat(lowered) if both else none.long(),
        pulls=torch.cat(pulls) if both else none,
        ranks=torch.cat(ranks),
        sizes=values.detach().float().norm(dim=1).cpu(),
    )


def never_negative(a: Architecture) -> bool:
    """Whether coefficients are 0 or more."""
    return a.activation in RELUS and not a.gated


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Of the neurons of a layer that fired where something was asked, ``n``: the share whose value says first what was
    asked at their strongest trigger; the share if triggers were dealt out among them at random; and the middle of the
    ranks that values give to what was asked."""

    n: int
    share: float
    chance: float
    rank: float


def agreement(networks: Sequence[Neurons]) -> Agreement:
    """Over the networks of a layer together."""
    asked = torch.cat([one.asked[:, 0] for one in networks])
    known = asked >= 0
    n = int(known.sum())
    if not n:
        return Agreement(n=0, share=0.0, chance=0.0, rank=0.0)
    asked = asked[known]
    said = torch.cat([one.said[:, 0] for one in networks])[known]
    most = int(max(asked.max(), said.max())) + 1
    pairs = (torch.bincount(asked, minlength=most) * torch.bincount(said, minlength=most)).sum()
    ranks = torch.cat([one.ranks for one in networks])[known]
    return Agreement(
        n=n,
        share=float((asked == said).double().mean()),
        chance=float(pairs) / n**2,
        rank=float(ranks.double().median()),
    )
