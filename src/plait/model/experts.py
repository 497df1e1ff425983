"""Mixture of experts: a feed-forward network in many parts, of which a router picks a few for every token.

Legend: b batch, n tokens, k picked for each, e experts, r = b n k rows, one for every token and expert it takes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plait.architecture import Architecture
from plait.architecture import Experts as Spec
from plait.model.feedforward import ACTIVATIONS, FeedForward, gated
from plait.model.grouped import GroupedLinear, runs
from plait.model.linear import Linear
from plait.model.sites import Part

CROWD = 16  # rows an expert, on average, from which on a loop over the experts is faster than a grouped product

SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(-1),
    "softmax_topk": lambda logits: logits.softmax(-1),
    "sigmoid": torch.sigmoid,
}


class Router(Part):
    """Scores every expert for every token and picks the best: by softmax (Shazeer et al. 2017), or by a sigmoid for
    each, within the best groups (DeepSeek-AI 2024, eqs. 12 to 16). Of equals the first is picked."""

    sites = ("scores",)

    def __init__(self, a: Architecture, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.weight = nn.Parameter(torch.empty(spec.n_experts, a.d_model))
        self.bias = nn.Parameter(torch.empty(spec.n_experts)) if spec.router_bias else None
        self.score_bias = nn.Parameter(torch.empty(spec.n_experts)) if spec.selection_bias else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``(b, n, d_model)`` -> weights, at least float32, and numbers of the experts picked, both ``(b, n, k)``.

        ``scores`` ``(b, n, e)``: of all experts, before any is picked.
        """
        # In half precision near ties would fall otherwise than they were trained to.
        wide = torch.promote_types(x.dtype, torch.float32)
        logits = F.linear(x.to(wide), self.weight.to(wide), None if self.bias is None else self.bias.to(wide))
        scores = self.site("scores", SCORES[self.spec.router](logits))
        return choose(scores, self.spec, None if self.score_bias is None else self.score_bias.to(wide))


def choose(scores: Tensor, spec: Spec, score_bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """``(..., e)`` -> what the experts picked count, and their numbers, ``(..., k)``, the best first."""
    judged = _in_groups(scores if score_bias is None else scores + score_bias, spec)
    chosen = judged.sort(dim=-1, descending=True, stable=True)[1][..., : spec.per_token]
    weights = scores.gather(-1, chosen)
    # The best, then their softmax: the same as the softmax over all, made to add up to 1 again.
    if spec.renormalize or spec.router == "softmax_topk":
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * spec.routed_scale, chosen


def _in_groups(judged: Tensor, spec: Spec) -> Tensor:
    """The same, and -inf outside the groups whose two best add up to most."""
    if spec.top_groups == spec.groups:
        return judged
    grouped = judged.unflatten(-1, (spec.groups, -1))
    order = grouped.topk(2, dim=-1)[0].sum(-1).sort(dim=-1, descending=True, stable=True)[1]
    out = torch.ones_like(order, dtype=torch.bool).scatter(-1, order[..., : spec.top_groups], False)
    return grouped.masked_fill(out.unsqueeze(-1), float("-inf")).flatten(-2)


class Networks(nn.Module):
    """The experts' matrices, each kind in one parameter."""

    def __init__(self, a: Architecture, spec: Spec) -> None:
        super().__init__()
        into = (spec.n_experts, a.d_model, spec.d_expert)
        self.gate = GroupedLinear(*into, bias=a.ffn_bias is True) if a.gated else None
        self.up = GroupedLinear(*into, bias=a.ffn_bias is True)
        self.down = GroupedLinear(spec.n_experts, spec.d_expert, a.d_model, bias=a.ffn_bias is not False)


class Experts(Part):
    """``sum of w_i expert_i(x)`` over the experts picked (Shazeer et al. 2017, eq. 1), and perhaps one that every token
    takes (Dai et al. 2024), which may have a gate of its own. Tokens are sorted by expert, so that each expert that was
    picked multiplies all of its tokens at once and no other is touched."""

    sites = ("routes", "hidden", "activation")

    def __init__(self, a: Architecture, spec: Spec) -> None:
        super().__init__()
        self.n_experts = spec.n_experts
        self.act, self.limit, self.offset = ACTIVATIONS[a.activation], a.glu_limit, a.glu_offset
        self.router = Router(a, spec)
        self.experts = Networks(a, spec)
        self.shared = FeedForward(a, spec.d_shared) if spec.d_shared else None
        self.shared_gate = Linear(a.d_model, 1, bias=False) if spec.shared_gate else None
        if spec.shared_gate:
            self.sites = (*self.sites, "shared_scale")

    def forward(self, x: Tensor) -> Tensor:
        """``(b, n, d_model)`` -> the same.

        ``routes`` ``(b, n, e)``: how much each expert counts, 0 where it was not picked. ``hidden`` and ``activation``
        ``(b, n, k, d_expert)``: of a token's experts, which stand in the order of their numbers. ``shared_scale``
        ``(b, n, 1)``: how much the shared one counts.
        """
        weights, chosen = self.router(x)
        if self.watched("routes", "hidden", "activation"):
            weights, chosen = self._seen(weights, chosen)
        numbers, order = chosen.flatten().sort(stable=True)
        every = torch.arange(self.n_experts, device=x.device)
        where, tokens = (numbers, torch.searchsorted(numbers, every, right=True)), order // chosen.shape[-1]
        weights, rows = weights.flatten()[order].unsqueeze(-1), x.flatten(0, 1)
        if self._in_turn(x, len(order)):
            y = self._one_by_one(rows, weights, tokens, where[1]).view_as(x).to(x.dtype)
        else:
            made = self._grouped(rows[tokens], where, order, chosen) * weights
            y = torch.empty_like(made).index_copy(0, order, made).view(*chosen.shape, x.shape[-1]).sum(-2).to(x.dtype)
        if self.shared is None:
            return y
        shared = self.shared(x)
        if self.shared_gate is None:
            return y + shared
        return y + self.site("shared_scale", self.shared_gate(x).sigmoid()) * shared

    def _grouped(self, rows: Tensor, where: tuple[Tensor, Tensor], order: Tensor, chosen: Tensor) -> Tensor:
        """What each row's expert makes of it, ``(r, d_model)`` -> the same."""
        parts = self.experts
        if parts.gate is None:
            fired = self.act(self._slots("hidden", parts.up(rows, *where), order, chosen))
        else:
            hidden = self._slots("hidden", parts.gate(rows, *where), order, chosen)
            fired = gated(self.act, hidden, parts.up(rows, *where), self.limit, self.offset)
        return parts.down(self._slots("activation", self.drop(fired), order, chosen), *where)

    def _in_turn(self, x: Tensor, rows: int) -> bool:
        """Whether one expert after the other is faster: on a CPU, with work for each, where nobody looks inside."""
        plain = not torch.is_grad_enabled() and not torch.compiler.is_compiling()
        return (
            plain
            and x.device.type == "cpu"
            and rows >= CROWD * self.n_experts
            and not self.watched("hidden", "activation")
        )

    def _one_by_one(self, x: Tensor, weights: Tensor, tokens: Tensor, ends: Tensor) -> Tensor:
        """``(t, d_model)`` -> the same, the weighed sum over a token's experts. What one expert needs stays in the
        processor's cache; its rows are columns, in eights, because so CPU libraries multiply a few of them fastest."""
        parts, y = self.experts, torch.zeros_like(x, dtype=weights.dtype)
        for expert, rows in runs(ends):
            taken = x[tokens[rows]]
            columns = F.pad(taken, (0, 0, 0, -len(taken) % 8)).t()  # d_model c
            if parts.gate is None:
                fired = self.act(parts.up.columns(columns, expert))
            else:
                hidden = parts.gate.columns(columns, expert)
                fired = gated(self.act, hidden, parts.up.columns(columns, expert), self.limit, self.offset)
            made = parts.down.columns(fired, expert).t()[: len(taken)]
            y.index_add_(0, tokens[rows], made * weights[rows])
        return y

    def _seen(self, weights: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The same choice by way of ``routes``: who changes them may give a token more experts, or fewer."""
        dense = weights.new_zeros(*chosen.shape[:-1], self.n_experts).scatter(-1, chosen, weights)
        routes = self.site("routes", dense)
        picked = routes != 0
        most = max(chosen.shape[-1], int(picked.sum(-1).max()))
        chosen = picked.int().sort(dim=-1, descending=True, stable=True)[1][..., :most]
        return routes.gather(-1, chosen), chosen

    def _slots(self, name: str, rows: Tensor, order: Tensor, chosen: Tensor) -> Tensor:
        """Rows in the order of experts, past a site that shows them by token ``(b, n, k, width)``."""
        if not self.watched(name):
            return rows
        by_token = torch.empty_like(rows).index_copy(0, order, rows).view(*chosen.shape, rows.shape[-1])
        return self.site(name, by_token).flatten(0, 2)[order]


def load_balance(scores: Tensor, routes: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """How the work was spread, ``(e,)`` each: the share of a token's picks that an expert got, and its mean score.

    ``scores`` and ``routes`` ``(b, n, e)`` are what the sites of those names saw; ``real`` ``(b, n)`` leaves out
    padding. Both are 1 / e where all experts have as much to do; sigmoid scores are made to add up to 1 first.
    """
    picked = (routes != 0).to(scores.dtype)
    share, score = picked / picked.sum(-1, keepdim=True).clamp(min=1), scores / scores.sum(-1, keepdim=True)
    if real is not None:
        share, score = share[real], score[real]
    return share.flatten(0, -2).mean(0), score.flatten(0, -2).mean(0)


def balance_loss(scores: Tensor, routes: Tensor, real: Tensor | None = None) -> Tensor:
    """The auxiliary loss of one layer (Fedus et al. 2022, eq. 4, over k picks): ``e * sum share_i score_i``, 1 where
    work is even and up to e where one expert does all. Watch the sites with ``gradients=True`` and add it, small."""
    share, score = load_balance(scores, routes, real)
    return scores.shape[-1] * (share.detach() * score).sum()
