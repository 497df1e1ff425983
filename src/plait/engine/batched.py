"""Batched: keys and values stored and attended to for many sequences at once, as a device wants it.

Legend: n rows of the pass, b sequences of a batch, q rows of each, h heads, g key and value heads, d head width,
s places for the tokens that a sequence holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.engine import program as p
from plait.engine.interpret import Dense, Registers, at, biases, fire, visible, with_shared
from plait.engine.laid import Batch, Laid
from plait.engine.pages import PAGE, Pages


class TokenPages(Pages):
    """Pages on a device: keys and values both ``(pages, 16, g, d)``, so that a token is gathered as it stands."""

    def shapes(self, n_kv_heads: int, d_head: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of a page of keys, and of values."""
        return (PAGE, n_kv_heads, d_head), (PAGE, n_kv_heads, d_head)


def store(o: p.Store, laid: Laid, registers: Registers) -> None:
    """Put keys and values in their places."""
    pages, places = laid.pages[o.space], laid.places[o.space]
    for storage, view in ((pages.keys[o.layer], o.target), (pages.values[o.layer], o.values)):
        heads = at(view, registers).unflatten(1, (-1, o.d_head))  # n g d
        storage.flatten(0, 1)[places] = heads.to(storage.dtype)


def attend(o: p.Attend, laid: Laid, registers: Registers, weights: Dense) -> None:
    """Every batch over what its sequences hold."""
    queries, target = at(o.queries, registers).unflatten(1, (o.n_heads, o.d_head)), at(o.target, registers)
    pages = laid.pages[o.space]
    for number, batch in enumerate(laid.batches):
        kind = (number, o.space, o.causal, o.window, o.alibi, o.relative_weight)
        sight = laid.once(kind, lambda batch=batch: _sight(o, laid, batch, weights))
        asked = queries.unsqueeze(1) if batch.rows is None else queries[batch.rows]  # b q h d
        keys, values = (
            storage[o.layer].flatten(0, 1)[sight.places].transpose(1, 2) for storage in (pages.keys, pages.values)
        )  # b g s d
        sinks = None if o.sinks is None else weights.dense(o.sinks)
        mix = _mix(o, asked.transpose(1, 2), keys, values, sight, sinks).transpose(1, 2).flatten(2).to(target.dtype)
        if batch.rows is None:
            target.copy_(mix[:, 0])
        else:
            target[batch.rows] = mix


def experts(o: p.Experts, registers: Registers, weights: Dense) -> None:
    """Few rows, by products whose shapes do not depend on who is picked, so that they can be captured: the matrices of
    the experts picked are copied side by side, or where that would be more to read, all experts take all rows."""
    x, routes = at(o.source, registers), at(o.routes, registers)  # n d, n e
    if 3 * len(x) * o.per_token > o.n_experts:  # a copy is read, written, and read again
        y = _of_experts(o, x, weights, None)  # e n d
        y = (routes.T.unsqueeze(-1) * y).sum(0)
    else:
        counts, chosen = routes.topk(o.per_token)  # n k
        picked = x.repeat_interleave(o.per_token, 0).unsqueeze(1)  # n k rows, each a product of its own
        y = _of_experts(o, picked, weights, chosen.flatten())
        y = (counts.unsqueeze(-1) * y.view(*chosen.shape, -1)).sum(1)
    at(o.target, registers).copy_(with_shared(o, y, registers))


def _of_experts(o: p.Experts, x: Tensor, weights: Dense, chosen: Tensor | None) -> Tensor:
    """``x`` through the experts chosen, or all."""

    def linear(z: Tensor, name: str, bias: str | None) -> Tensor:
        weight = weights.dense(name) if chosen is None else weights.dense(name)[chosen]
        y = (z.to(weight.dtype) @ weight.transpose(1, 2)).to(x.dtype)
        if bias is None:
            return y
        added = weights.dense(bias) if chosen is None else weights.dense(bias)[chosen]
        return y + added.unsqueeze(1)

    return linear(fire(o, x, linear), o.down, o.down_bias)


@dataclass(frozen=True)
class _Sight:
    """What the rows of a batch see, the same in all layers of a kind. Heads that share keys are rows of one product."""

    places: Tensor  # (b, s), where the tokens are
    allowed: Tensor  # (b, 1, q or h / g * q, s)
    bias: Tensor | None  # (b, g, h / g * q, s)
    blind: Tensor | None  # (b, 1, 1, 1): sequences that hold nothing


def _sight(o: p.Attend, laid: Laid, batch: Batch, weights: Dense) -> _Sight:
    table = batch.tables[o.space]
    group = o.n_heads // o.n_kv_heads
    slots = torch.arange(PAGE, device=table.pages.device)
    places = (table.pages.unsqueeze(-1) * PAGE + slots).flatten(1)  # b s
    tokens = torch.arange(places.shape[1], device=places.device)
    # Who holds nothing looks at some place all the same: softmax over nothing is NaN, on some devices.
    there = tokens < table.lengths.clamp(min=1).unsqueeze(1)  # b s
    # Where there is no token of its own a sequence reads its first one again: other places are others', and whatever
    # stands there, NaN too, must not reach it.
    places = torch.where(there, places, places[:, :1])
    orders, positions = (
        (x.unsqueeze(1) if batch.rows is None else x[batch.rows]).unsqueeze(-1) for x in (laid.orders, laid.positions)
    )  # b q 1
    allowed = (visible(o, orders - tokens) & there.unsqueeze(1)).unsqueeze(1)  # b 1 q s
    bias = None
    if table.positions is not None and (o.alibi is not None or o.relative is not None):
        dtype = torch.promote_types(laid.pages[o.space].dtype, torch.float32)
        bias = biases(o, positions.squeeze(-1), table.positions, weights, dtype)  # b h q s
        bias = bias.masked_fill(~allowed, float("-inf")).unflatten(1, (-1, group)).flatten(2, 3)
    if allowed.shape[2] > 1:
        allowed = allowed.repeat(1, 1, group, 1)
    blind = (table.lengths == 0).view(-1, 1, 1, 1) if o.space == "memory" else None
    return _Sight(places, allowed, bias, blind)


def _mix(o: p.Attend, queries: Tensor, keys: Tensor, values: Tensor, sight: _Sight, sinks: Tensor | None) -> Tensor:
    """``(b, h, q, d)`` over ``(b, g, s, d)`` -> ``(b, h, q, d)``; in float32 where scores are capped, biased or shared
    with ``sinks`` ``(h,)``, else in the type of the pages."""
    rows = queries.unflatten(1, (o.n_kv_heads, -1)).flatten(2, 3)  # b g (h / g q) d
    if o.softcap is not None or sinks is not None or sight.bias is not None:
        keys, values = keys.to(rows.dtype), values.to(rows.dtype)
    if o.softcap is not None or sinks is not None:  # which the fused kernels do not have
        scores = rows @ keys.transpose(2, 3) * o.scale
        scores = scores if o.softcap is None else o.softcap * torch.tanh(scores / o.softcap)
        blended = scores.masked_fill(~sight.allowed, float("-inf")) if sight.bias is None else scores + sight.bias
        if sinks is not None:
            column = sinks.to(scores.dtype).view(o.n_kv_heads, -1, 1).expand(-1, -1, queries.shape[2]).flatten(1)
            blended = torch.cat((blended, column[:, :, None].expand(len(blended), -1, -1, 1)), -1)
        mix = blended.softmax(-1)[..., : values.shape[2]] @ values
    else:
        mask = sight.allowed if sight.bias is None else sight.bias
        mix = F.scaled_dot_product_attention(rows.to(keys.dtype), keys, values, attn_mask=mask, scale=o.scale)
    if sight.blind is not None:
        mix = mix.masked_fill(sight.blind, 0.0)
    return mix.unflatten(2, (o.n_heads // o.n_kv_heads, -1)).flatten(1, 2)
