"""Attention, one class for self and cross: what each query sees, weighed by how well its keys answer.

Legend: b batch, q queries, k keys, h heads, g key and value heads, d head width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plait.architecture import Architecture, Tower
from plait.model.linear import Linear
from plait.model.norm import Norm
from plait.model.position import RelativeScores, Rotation
from plait.model.sites import Part

SHORT = 256  # keys up to which training in half precision on a CPU multiplies in the open


@dataclass
class Sight:
    """What the layers of one type share in a pass: who sees whom, how queries and keys turn, what is added to scores.

    ``allowed`` ``(b or 1, 1, q, k)`` boolean, ``None``: everything. ``square``: plain causality over one run of tokens,
    which the fused kernel knows without a mask. ``bias`` ``(b or 1, h, q, k)``.
    """

    allowed: Tensor | None = None
    square: bool = False
    rotation: Rotation | None = None
    table: tuple[Tensor, Tensor] | None = None
    bias: Tensor | None = None
    _blend: Tensor | None = None

    def blend(self) -> Tensor | None:
        """The one mask the fused kernel takes: boolean, or the bias with -inf where nothing may be seen."""
        if self.bias is None:
            return self.allowed
        if self._blend is None:
            self._blend = self.bias if self.allowed is None else self.bias.masked_fill(~self.allowed, float("-inf"))
        return self._blend


Kernel = Callable[[Tensor, Tensor, Tensor, Sight, float, float], Tensor]  # of q, k, v, sight, scale, dropout's rate


class Attention(Part):
    """``softmax(cap(scale * Q K^T) + bias) V``, heads side by side (Vaswani et al. 2017, eq. 1); grouped keys and
    values (Ainslie et al. 2023), norms on queries and keys (Henry et al. 2020), capped scores (Gemma 2), and sinks that
    take a share of the softmax (Xiao et al. 2024; GPT-OSS)."""

    sites = ("queries", "keys", "values", "scores", "pattern", "mix")
    kernel: Kernel | None = None  # put in from outside, for float32 where nothing is added to scores

    def __init__(self, a: Architecture, tower: Tower, *, relative: bool = False, sinks: bool = False) -> None:
        super().__init__()
        self.d_head, self.group = tower.d_head, tower.group
        self.scale, self.softcap, self.clip = tower.attention_scale, a.attention_softcap, a.qkv_clip
        wide, narrow = tower.n_heads * tower.d_head, tower.n_kv_heads * tower.d_head
        self.query = Linear(a.d_model, wide, bias=a.qkv_bias)
        self.key = Linear(a.d_model, narrow, bias=a.qkv_bias)
        self.value = Linear(a.d_model, narrow, bias=a.qkv_bias)
        self.output = Linear(wide, a.d_model, bias=a.output_bias)
        self.query_norm = self._head_norm(a, tower.n_heads)
        self.key_norm = self._head_norm(a, tower.n_kv_heads)
        self.turns_first = a.qk_norm_after_rope
        self.sinks = nn.Parameter(torch.empty(tower.n_heads)) if sinks else None
        spec = a.relative_bias if relative else None
        self.relative_bias = RelativeScores(spec, tower.n_heads, causal=tower.causal) if spec else None

    def _head_norm(self, a: Architecture, heads: int) -> Norm | None:
        shapes = {"head": (self.d_head,), "per_head": (heads, self.d_head), "full": (heads * self.d_head,)}
        return Norm(a, *shapes[a.qk_norm]) if a.qk_norm else None

    def _split(self, x: Tensor, norm: Norm | None, sight: Sight | None = None) -> Tensor:
        """``(b, n, heads * d)`` -> ``(b, heads, n, d)``, normed, clipped and turned to their positions."""
        if norm is not None and norm.width != self.d_head:  # over all heads at once
            x, norm = norm(x), None
        x = x.unflatten(-1, (-1, self.d_head))
        if norm is not None and not self.turns_first:
            x = norm(x)
        x = x if self.clip is None else x.clamp(-self.clip, self.clip)
        x = x.transpose(1, 2)
        if sight is not None and sight.rotation is not None and sight.table is not None:
            x = sight.rotation.turn(x, sight.table)
        return norm(x.transpose(1, 2)).transpose(1, 2) if norm is not None and self.turns_first else x

    def queries(self, x: Tensor, sight: Sight) -> Tensor:
        """``(b, q, d_model)`` -> ``(b, h, q, d)``."""
        return self.site("queries", self._split(self.query(x), self.query_norm, sight))

    def keys_values(self, x: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        """``(b, k, d_model)`` -> two of ``(b, g, k, d)``."""
        keys = self._split(self.key(x), self.key_norm, sight)
        return self.site("keys", keys), self.site("values", self._split(self.value(x), None))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, sight: Sight) -> Tensor:
        """``(b, h, q, d)`` over ``(b, g, k, d)`` -> ``(b, q, d_model)``. A query that sees nothing gets zeros."""
        in_the_open = self.softcap is not None or self.sinks is not None or self.watched("scores", "pattern")
        rate = self.dropout.rate if self.dropout is not None and self.training else 0.0
        if self.kernel and not in_the_open and sight.bias is None and keys.dtype == torch.float32:
            mix = self.kernel(queries, keys, values, sight, self.scale, rate)
        elif in_the_open or self._slow_fused(keys):
            mix = self._by_hand(queries, keys, values, sight)
        else:
            mix = F.scaled_dot_product_attention(
                queries, keys, values, sight.blend(), rate, sight.square, scale=self.scale, enable_gqa=self.group > 1
            )
        return self.output(self.site("mix", mix).transpose(1, 2).flatten(2))

    def _slow_fused(self, keys: Tensor) -> bool:
        """Whether the fused kernel would be slower than products of matrices: on a CPU it drops nothing by itself, and
        in half precision it is slow on short rows."""
        half = keys.dtype == torch.bfloat16 and keys.shape[2] <= SHORT and torch.is_grad_enabled()
        return self.training and keys.device.type == "cpu" and (half or self.dropout is not None)

    def _by_hand(self, queries: Tensor, keys: Tensor, values: Tensor, sight: Sight) -> Tensor:
        """The same sum with scores and pattern in the open."""
        rows = queries.shape[:-1]  # b h q
        queries = (queries * self.scale).flatten(1, 2).unflatten(1, (keys.shape[1], -1))  # all of a group's, b g q d
        scores = (queries @ keys.transpose(-1, -2)).view(*rows, -1)  # b h q k
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if sight.bias is not None:
            scores = scores + sight.bias
        scores = self.site("scores", scores)
        allowed = sight.allowed
        if sight.square:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if self.sinks is not None:  # one more key for each head, that everyone sees and that has no value
            scores = scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))
            sinks = self.sinks.to(scores.dtype)[:, None, None].expand(scores.shape[0], -1, scores.shape[2], 1)
            pattern = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]
        elif allowed is None:
            pattern = scores.softmax(-1)
        else:  # softmax over nothing is NaN, and so are its gradients: such a row is let through, then zeroed
            blind = ~allowed.any(-1, keepdim=True)
            pattern = scores.masked_fill(~(allowed | blind), float("-inf")).softmax(-1).masked_fill(blind, 0.0)
        return (self.site("pattern", self.drop(pattern)).reshape(*queries.shape[:-1], -1) @ values).view(*rows, -1)
