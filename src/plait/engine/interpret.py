"""Every operation in torch: the oracle of the kernels, and what runs where there is none.

Legend: n rows, w wanted rows, h heads, g key and value heads, d head width, s tokens held by one sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plait.engine import program as p
from plait.engine.laid import Laid
from plait.engine.pages import PAGE
from plait.engine.passes import Held, Pass
from plait.engine.program import Operation, Register, View
from plait.model.experts import SCORES, choose
from plait.model.feedforward import ACTIVATIONS, gated
from plait.model.position import alibi, alibi_slopes, relative_buckets, sinusoids


class Dense(Protocol):
    """Where operations find their parameters, whatever they are stored as."""

    def dense(self, name: str) -> Tensor:
        """The parameter, in the type that is computed in."""
        ...


Registers = Mapping[Register, Tensor]


def execute(operation: Operation, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    """Do one operation: read registers ``(n or w, width)`` and weights, write its target."""
    _DO[type(operation)](operation, pass_, registers, weights)


def at(view: View, registers: Registers) -> Tensor:
    """The columns of a view."""
    return registers[view.register][:, view.start : view.start + view.width]


def _embed(o: p.Embed, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    target, tokens = at(o.target, registers), _index(pass_.tokens)
    x = weights.dense(o.table)[tokens].to(target.dtype) * o.scale
    positions = _index(pass_.positions) + o.offset
    if o.positions is not None:
        x = x + weights.dense(o.positions)[positions]
    elif o.sinusoid is not None:
        x = x + sinusoids(positions, o.target.width, o.sinusoid).to(x.dtype)
    if o.types is not None:
        types = torch.zeros_like(tokens) if pass_.types is None else _index(pass_.types)
        x = x + weights.dense(o.types)[types]
    target.copy_(x)


def _norm(o: p.Norm, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    x = at(o.source, registers).unflatten(1, (-1, o.width))
    y = F.layer_norm(x, (o.width,), eps=o.eps) if o.centred else F.rms_norm(x, (o.width,), eps=o.eps)
    if o.weight is not None:
        weight = weights.dense(o.weight)
        y = y * (1 + weight if o.offset else weight).view(-1, o.width)
    if o.bias is not None:
        y = y + weights.dense(o.bias).view(-1, o.width)
    at(o.target, registers).copy_(y.flatten(1))


def _linear(o: p.Linear, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    x = at(o.source, registers)
    parts = [
        _product(x, weights.dense(weight), None if bias is None else weights.dense(bias))
        for weight, bias in zip(o.weight, o.bias, strict=True)
    ]
    y = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    y = o.scale * (y if o.activation is None else ACTIVATIONS[o.activation](y))
    target = at(o.target, registers)
    target.copy_(o.skip * target + y if o.add else y)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A weight of another type than its register's multiplies in its own, and the bias is added in the register's."""
    if weight.dtype == x.dtype:
        return F.linear(x, weight, bias)
    y = F.linear(x.to(weight.dtype), weight).to(x.dtype)
    return y if bias is None else y + bias


def _clamp(o: p.Clamp, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    at(o.target, registers).clamp_(-o.limit, o.limit)


def _rotate(o: p.Rotate, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    heads = at(o.target, registers).unflatten(1, (-1, o.d_head))  # n h d
    cos, sin = pass_.turns_of(o.rope).to(heads.dtype).unsqueeze(1).chunk(2, dim=-1)
    turned = heads[..., : 2 * cos.shape[-1]]
    if o.rope.interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned.chunk(2, dim=-1)
    one, two = first * cos - second * sin, second * cos + first * sin
    first.copy_(one)
    second.copy_(two)


def _store(o: p.Store, pass_: Pass, registers: Registers, weights: Dense) -> None:
    held = pass_.spaces[o.space]
    order = pass_.orders
    page = [held.tables[s][i] for s, i in zip(pass_.sequences, order // PAGE, strict=True)]
    pages, slots = _index(np.array(page, np.int64)), _index(order % PAGE)
    keys, values = (at(v, registers).unflatten(1, (-1, o.d_head)) for v in (o.target, o.values))  # n g d
    held.pages.keys[o.layer][pages, :, :, slots] = keys.to(held.pages.dtype)
    held.pages.values[o.layer][pages, :, slots, : o.d_head] = values.to(held.pages.dtype)


def _attend(o: p.Attend, pass_: Pass, registers: Registers, weights: Dense) -> None:
    queries = at(o.queries, registers).unflatten(1, (o.n_heads, o.d_head))  # n h d
    target = at(o.target, registers)
    held = pass_.spaces[o.space]
    for sequence in range(pass_.n_sequences):
        rows = slice(int(pass_.begins[sequence]), int(pass_.begins[sequence + 1]))
        if rows.start == rows.stop:
            continue
        keys, values, key_positions = _gather(o, held, sequence, queries.dtype)  # g s d, s
        orders, positions = _index(pass_.orders[rows]), _index(pass_.positions[rows])
        group = o.n_heads // o.n_kv_heads
        grouped = queries[rows].transpose(0, 1).unflatten(0, (o.n_kv_heads, group))  # g group n d
        scores = (grouped @ keys.transpose(1, 2).unsqueeze(1)).flatten(0, 1) * o.scale  # h n s
        if o.softcap is not None:
            scores = o.softcap * torch.tanh(scores / o.softcap)
        if o.alibi is not None or o.relative is not None:
            scores = scores + biases(o, positions, key_positions, weights, scores.dtype)
        behind = orders[:, None] - torch.arange(keys.shape[1])[None, :]
        allowed = visible(o, behind)
        scores = scores.masked_fill(~allowed, float("-inf"))
        if o.sinks is not None:
            sinks = weights.dense(o.sinks).to(scores.dtype)[:, None, None].expand(-1, scores.shape[1], 1)
            pattern = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]
        else:
            blind = ~allowed.any(-1, keepdim=True)
            pattern = scores.softmax(-1).masked_fill(blind, 0.0)  # who sees nothing gets zeros
        mix = (pattern.unflatten(0, (o.n_kv_heads, group)) @ values.unsqueeze(1)).flatten(0, 1)  # h n d
        target[rows] = mix.transpose(0, 1).flatten(1)


def _gather(o: p.Attend, held: Held, sequence: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """What a sequence holds, out of its pages: keys and values ``(g, s, d)``, positions ``(s,)``."""
    length = int(held.lengths[sequence])
    numbers = held.tables[sequence][: -(-length // PAGE)]
    pages = _index(numbers)
    keys = held.pages.keys[o.layer][pages].permute(1, 0, 3, 2).flatten(1, 2)[:, :length].to(dtype)
    values = held.pages.values[o.layer][pages].transpose(0, 1).flatten(1, 2)[:, :length, : o.d_head].to(dtype)
    return keys, values, _index(held.pages.positions[numbers].reshape(-1)[:length])


def biases(o: p.Attend, queries: Tensor, keys: Tensor, weights: Dense, dtype: torch.dtype) -> Tensor:
    """What is added to scores, from the positions of queries ``(..., n)`` and keys ``(..., s)``: ``(..., h, n, s)``."""
    bias = torch.zeros((), dtype=dtype, device=queries.device)
    if o.alibi is not None:
        bias = bias + alibi(o.alibi, queries, keys, _slopes(o.n_heads, dtype, queries.device), o.scale)
    if o.relative is not None and o.relative_weight is not None:
        distance = keys.unsqueeze(-2) - queries.unsqueeze(-1)
        buckets = relative_buckets(distance, o.relative, causal=o.causal)
        bias = bias + weights.dense(o.relative_weight).to(dtype)[buckets].movedim(-1, -3)
    return bias


@cache  # made once: nothing may come from the host while a graph is captured
def _slopes(n_heads: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(alibi_slopes(n_heads), dtype=dtype, device=device)


def visible(o: p.Attend, behind: Tensor) -> Tensor:
    """Boolean, from how far each key is ``behind`` its query, of the same shape."""
    allowed = behind >= 0 if o.causal else torch.ones_like(behind, dtype=torch.bool)
    if o.window is not None:
        allowed &= behind < o.window if o.causal else behind.abs() <= o.window
    return allowed


def _activate(o: p.Activate, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    target = at(o.target, registers)
    target.copy_(ACTIVATIONS[o.activation](target))


def _gate(o: p.Gate, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    target = at(o.target, registers)
    target.copy_(gated(ACTIVATIONS[o.activation], target, at(o.up, registers), o.limit, o.offset))


def _route(o: p.Route, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    target = at(o.target, registers)
    bias = None if o.score_bias is None else weights.dense(o.score_bias)
    counts, chosen = choose(SCORES[o.spec.router](target), o.spec, bias)
    target.copy_(torch.zeros_like(target).scatter(1, chosen, counts))


def _experts(o: p.Experts, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    x, routes = at(o.source, registers), at(o.routes, registers)
    y = torch.zeros_like(x)
    for number in (routes != 0).any(0).nonzero()[:, 0].tolist():
        rows = routes[:, number].nonzero()[:, 0]

        def linear(z: Tensor, name: str, bias: str | None, number: int = number) -> Tensor:
            return _product(z, weights.dense(name)[number], None if bias is None else weights.dense(bias)[number])

        made = linear(fire(o, x[rows], linear), o.down, o.down_bias)
        y.index_add_(0, rows, made * routes[rows, number, None])
    at(o.target, registers).copy_(with_shared(o, y, registers))


def fire(o: p.Experts, x: Tensor, linear: Callable[[Tensor, str, str | None], Tensor]) -> Tensor:
    """What the experts' down projections read, ``linear`` being a product with a parameter and its bias."""
    up, act = linear(x, o.up, o.up_bias), ACTIVATIONS[o.activation]
    return act(up) if o.gate is None else gated(act, linear(x, o.gate, o.gate_bias), up, o.limit, o.offset)


def with_shared(o: p.Experts, y: Tensor, registers: Registers) -> Tensor:
    """What experts made, and what the one made that every row takes."""
    if o.shared is None:
        return y
    shared = at(o.shared, registers)
    return y + (shared if o.shared_gate is None else at(o.shared_gate, registers).sigmoid() * shared)


def _add(o: p.Add, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    target = at(o.target, registers)
    target.copy_(o.skip * target + o.scale * at(o.source, registers))


def _take(o: p.Take, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    at(o.target, registers).copy_(at(o.source, registers)[_index(pass_.taken)])


def _pool(o: p.Pool, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    source, target = at(o.source, registers), at(o.target, registers)
    for sequence, (begin, end) in enumerate(zip(pass_.begins[:-1].tolist(), pass_.begins[1:].tolist(), strict=True)):
        rows = source[begin:end]
        if o.pooling == "mean":
            target[sequence] = rows.sum(0) / max(1, end - begin)
        else:
            target[sequence] = rows[0 if o.pooling == "cls" else -1]


def _cap(o: p.Cap, pass_: Pass | Laid, registers: Registers, weights: Dense) -> None:
    target = at(o.target, registers)
    y = target * o.scale
    target.copy_(y if o.softcap is None else o.softcap * torch.tanh(y / o.softcap))


def _index(numbers: np.ndarray | Tensor) -> Tensor:
    return numbers.long() if isinstance(numbers, Tensor) else torch.from_numpy(numbers.astype(np.int64))


_DO: dict[type[Operation], Callable[[Any, Any, Registers, Dense], None]] = {
    p.Embed: _embed,
    p.Norm: _norm,
    p.Linear: _linear,
    p.Clamp: _clamp,
    p.Rotate: _rotate,
    p.Store: _store,
    p.Attend: _attend,
    p.Activate: _activate,
    p.Gate: _gate,
    p.Route: _route,
    p.Experts: _experts,
    p.Add: _add,
    p.Take: _take,
    p.Pool: _pool,
    p.Cap: _cap,
}
