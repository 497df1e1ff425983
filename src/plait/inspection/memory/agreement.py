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
    def added(self) -> Tensor:
        """How long the vector is that each adds to the stream at its strongest trigger, ``(m,)``."""
        return self.triggers.strengths[:, 0].abs() * self.sizes

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
    signs = torch.where(triggers.strengths[:, 0] < 0, -1.0, 1.0)[
        :, None
    ]  # values are read as their best trigger adds them
    both = not never_negative(reader.model.architecture)
    k, wanted = min(k, len(reader.table)), asked[:, :1].to(values.device)
    raised, lowered, ranks, done = list[_Top](), list[_Top](), list[Tensor](), 0
    for scores in reader.scores(turn, values * signs.to(values)):
        raised.append(_top(scores, k))
        lowered.append(_top(scores, k if both else 0, largest=False))
        token = wanted[done : done + len(scores)]
        above = (scores > scores.gather(1, token.clamp(min=0))).float().sum(1)  # faster than to count by whole numbers
        ranks.append(torch.where(token[:, 0] < 0, 0, above.long() + 1).cpu())
        done += len(scores)
    (most, pushes), (least, pulls) = _joined(raised), _joined(lowered)
    if both:
        most, least = torch.where(signs > 0, most, least), torch.where(signs > 0, least, most)
        pushes, pulls = torch.where(signs > 0, pushes, pulls), torch.where(signs > 0, pulls, pushes)
    return Neurons(
        name=name,
        tower=reader.tower,
        turn=turn,
        triggers=triggers,
        asked=asked,
        raised=most,
        pushes=pushes,
        lowered=least,
        pulls=pulls,
        ranks=torch.cat(ranks),
        sizes=values.detach().float().norm(dim=1).cpu(),
    )


_Top = tuple[Tensor, Tensor]


def _top(scores: Tensor, k: int, *, largest: bool = True) -> _Top:
    """The ``k`` largest or least of each row: which they are, and how many deviations from the row's mean."""
    mean = scores.mean(-1, keepdim=True)
    spread = (scores.norm(dim=-1, keepdim=True).square() / scores.shape[-1] - mean.square()).clamp(min=1e-30).sqrt()
    found = scores.topk(k, largest=largest)
    return found.indices.cpu(), ((found.values - mean) / spread).abs().cpu()


def _joined(tops: Sequence[_Top]) -> _Top:
    return torch.cat([ids for ids, _ in tops]), torch.cat([sizes for _, sizes in tops])


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
