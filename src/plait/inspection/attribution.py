"""Attribution: how much of one output each part of the model wrote (Elhage et al. 2021, "direct logit attribution").

The residual stream is a sum; norms, and the non-linear functions behind it, are taken as the linear maps that they are
for this one row: with the statistics, and the ratio of output to input, that they had. So parts add up to the output,
for any norm placement and any head.

Legend: p parts, n places, w width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.inspection.errors import InspectionError
from plait.inspection.lens import stack_of
from plait.inspection.memory.networks import memories
from plait.inspection.trace import Trace
from plait.model.attention import Attention
from plait.model.block import Block
from plait.model.head import Head
from plait.model.linear import Linear
from plait.model.norm import Norm, Slots

By = Literal["branches", "heads", "neurons"]
Parts = list[tuple[list[str], Tensor]]  # names, and what each wrote: (p, n, w)


@dataclass(frozen=True, kw_only=True, eq=False)
class Attribution:
    """``values`` ``(p,)``: what each of the parts ``names`` adds to ``output``, which they sum up to."""

    names: list[str]
    values: Tensor
    output: float

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return float(self.values.double().sum())

    def largest(self, k: int = 10) -> list[tuple[str, float]]:
        """The parts that add or take most."""
        order = self.values.abs().argsort(descending=True)[:k].tolist()
        return [(self.names[i], float(self.values[i])) for i in order]


@torch.no_grad()
def attribute(
    trace: Trace, token: int, *, against: int | None = None, position: int = -1, by: By = "branches"
) -> Attribution:
    """Who wrote the output ``token`` at ``position``.

    Args:
        trace: of all sites, or of the residual stream, branches, ``mix`` and, by neurons, FFNs.
        token: the output's number: a token, a label, or without a head a place of the hidden state.
        against: another, whose output is subtracted.
        position: of the row; counts for nothing where the head reads the row as a whole.
        by: whole sublayers; attention by its heads; or FFNs by their neurons as well.

    Raises ``InspectionError`` for outputs and positions that there are not.
    """
    model, output = trace.model, trace.output
    pooled = output.ndim == 1
    if not pooled and not -len(output) <= position < len(output):
        raise InspectionError(f"position: {position}, and the row has {len(output)} tokens.")
    for number in (token, against):
        if number is not None and not 0 <= number < output.shape[-1]:
            raise InspectionError(f"token: {number}, and there are outputs 0 to {output.shape[-1] - 1}.")
    at = slice(None) if pooled else slice(position % len(output), position % len(output) + 1)
    pieces = _Stream(trace, at, by)
    for turn, block in enumerate(stack_of(model).blocks):
        pieces.run(block, f"{trace.tower}.layers.{turn}")
    norm = stack_of(model).norm
    if norm is not None:
        pieces.normed(norm, f"{trace.tower}.norm", pieces.states)
    asked = output if pooled else output[at][0]
    if model.head is not None:
        assert model.embedding.tokens is not None
        pieces.head(model.head, model.embedding.tokens.weight, [token] if against is None else [token, against])
    else:
        pieces.parts = [
            (names, part[:, 0, [token] if against is None else [token, against]]) for names, part in pieces.parts
        ]
    values = torch.cat([part for _, part in pieces.parts])  # p, one or two outputs
    return Attribution(
        names=[name for names, _ in pieces.parts for name in names],
        values=values[:, 0] if against is None else values[:, 0] - values[:, 1],
        output=float(asked[token] - (asked[against] if against is not None else 0)),
    )


class _Stream:
    """The residual stream at some places: ``states`` ``(n, w)``, and the parts that it is the sum of."""

    def __init__(self, trace: Trace, at: slice, by: By) -> None:
        self.trace, self.at, self.by = trace, at, by
        self.states = self.seen("embedding.output")
        self.parts: Parts = [(["embedding.output"], self.states[None])]

    def seen(self, name: str) -> Tensor:
        value = self.trace[name][self.at]
        return value.to(torch.promote_types(value.dtype, torch.float32))

    def run(self, block: Block, layer: str) -> None:
        """One layer."""
        added = self.attention(block.attention, block.attention_norms, f"{layer}.attention")
        if block.parallel != "none":
            self.join(block.attention_norms, f"{layer}.attention_norms", added)
            self.parts += self.ffn(block, layer)
            self.states = self.seen(f"{layer}.output")
            return
        self.join(block.attention_norms, f"{layer}.attention_norms", added)
        if block.cross is not None and block.cross_norms is not None:
            added = self.attention(block.cross, block.cross_norms, f"{layer}.cross")
            self.join(block.cross_norms, f"{layer}.cross_norms", added)
        self.join(block.ffn_norms, f"{layer}.ffn_norms", self.ffn(block, layer))

    def attention(self, attention: Attention, slots: Slots, name: str) -> Parts:
        """What the heads add."""
        if self.by == "branches":
            return [([f"{name}_branch"], self.seen(f"{name}_branch")[None])]
        mix = self.trace[f"{name}.mix"][:, self.at]  # h n d
        weight = attention.output.weight.unflatten(1, (len(mix), -1))  # w h d
        heads = torch.einsum("hnd,whd->hnw", mix.to(self.states.dtype), weight.to(self.states.dtype))
        parts: Parts = [([f"{name}.heads.{head}" for head in range(len(mix))], heads)]
        return self.branch(slots, f"{name}_norms", [*parts, *self.bias(attention.output.bias, f"{name}.output.bias")])

    def ffn(self, block: Block, layer: str) -> Parts:
        """What the feed-forward network adds."""
        if self.by != "neurons":
            return [([f"{layer}.ffn_branch"], self.seen(f"{layer}.ffn_branch")[None])]
        parts: Parts = []
        seen = {name: self.seen(name) for name in self.trace if name.startswith(f"{layer}.ffn.")}
        for network in memories(block.ffn, seen, f"{layer}.ffn"):
            values = network.values.to(self.states.dtype)
            parts.append((network.names, network.coefficients.t()[:, :, None] * values[:, None]))
            if network.bias is not None:
                parts.append(([f"{network.name}.down.bias"], (network.shares * network.bias)[None]))
        return self.branch(block.ffn_norms, f"{layer}.ffn_norms", parts)

    def bias(self, bias: Tensor | None, name: str) -> Parts:
        """A bias as a part, if there is one."""
        return [] if bias is None else [([name], bias.to(self.states.dtype).expand(1, len(self.states), -1))]

    def branch(self, slots: Slots, name: str, parts: Parts) -> Parts:
        """``Slots.branch`` of a sum of parts."""
        if slots.after is not None:
            parts = self.through(slots.after, f"{name}.after", summed(parts), parts)
        return [(names, part * slots.residual_scale) for names, part in parts]

    def join(self, slots: Slots, name: str, added: Parts) -> None:
        """``Slots.leave`` of a sum of parts."""
        self.parts = [(names, part * slots.skip_scale) for names, part in self.parts] + added
        self.states = self.states * slots.skip_scale + summed(added)
        if slots.merge is not None:
            self.normed(slots.merge, f"{name}.merge", self.states)

    def normed(self, norm: Norm, name: str, states: Tensor) -> None:
        """The stream past a norm."""
        self.parts = self.through(norm, name, states, self.parts)
        self.states = summed(self.parts)

    def through(self, norm: Norm, name: str, states: Tensor, parts: Parts) -> Parts:
        """A norm as the linear map that it is for ``states``, its bias a part of its own."""
        centred = states - states.mean(-1, keepdim=True) if norm.centred else states
        scale = (centred.square().mean(-1, keepdim=True) + norm.eps).rsqrt()  # n 1
        if norm.weight is not None:
            scale = scale * (norm.weight.to(scale.dtype) + (1 if norm.offset else 0))
        made: Parts = []
        for names, part in parts:
            part = part - part.mean(-1, keepdim=True) if norm.centred else part
            made.append((names, part * scale))
        return made + self.bias(norm.bias, f"{name}.bias")

    def head(self, head: Head, table: Tensor, outputs: list[int]) -> None:
        """What each part adds to some outputs: from here on parts are ``(p, o)``."""
        if head.pooling == "cls":
            self.pick(slice(0, 1))
        elif head.pooling == "last":
            self.pick(slice(-1, None))
        elif head.pooling == "mean":
            self.states = self.states.mean(0, keepdim=True)
            self.parts = [(names, part.mean(1, keepdim=True)) for names, part in self.parts]
        if head.act is not None:
            self.linear(head.dense, "head.dense")
            self.bent(head.act)
            if head.norm is not None:
                self.normed(head.norm, "head.norm", self.states)
        weight = (table if head.output.weight is None else head.output.weight)[outputs].to(self.states.dtype)
        logits = self.states[0] @ weight.t()
        self.parts = [(names, part[:, 0] @ weight.t()) for names, part in self.parts]
        if head.output.bias is not None:
            bias = head.output.bias[outputs].to(logits.dtype)
            logits = logits + bias
            self.parts.append((["head.output.bias"], bias[None]))
        logits = logits * head.scale
        share = torch.full_like(logits, head.scale)
        if (cap := head.softcap) is not None:
            share = share * _ratio(lambda x: cap * torch.tanh(x / cap), logits)
        self.parts = [(names, part * share) for names, part in self.parts]

    def pick(self, at: slice) -> None:
        """Some places alone."""
        self.states = self.states[at]
        self.parts = [(names, part[:, at]) for names, part in self.parts]

    def linear(self, linear: Linear, name: str) -> None:
        """The stream past a linear layer, whose bias is a part of its own."""
        weight = linear.weight.to(self.states.dtype)
        self.parts = [(names, F.linear(part, weight)) for names, part in self.parts]
        self.states = F.linear(self.states, weight)
        if linear.bias is not None:
            self.states = self.states + linear.bias.to(self.states.dtype)
            self.parts += self.bias(linear.bias, f"{name}.bias")

    def bent(self, act: Callable[[Tensor], Tensor]) -> None:
        """The stream past an activation."""
        ratio = _ratio(act, self.states)
        self.parts = [(names, part * ratio) for names, part in self.parts]
        self.states = act(self.states)


def _ratio(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What the function, which is 0 at 0, multiplies x by."""
    return torch.where(x == 0, 0.0, function(x) / torch.where(x == 0, 1.0, x))


def summed(parts: Parts) -> Tensor:
    """``(n, w)``."""
    return torch.stack([part.sum(0) for _, part in parts]).sum(0)
