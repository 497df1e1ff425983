"""Block: attention, attention to a memory, and a feed-forward network around one residual stream."""

from __future__ import annotations

from torch import Tensor

from plait.architecture import Architecture, Tower
from plait.model.attention import Attention, Sight
from plait.model.cache import Cache
from plait.model.experts import Experts
from plait.model.feedforward import FeedForward
from plait.model.norm import Slots
from plait.model.sites import Part
from plait.parameters import SLOTS


class Block(Part):
    """One layer. Every sublayer f does ``x = merge(skip * x + after(f(before(x))))`` with the norms its slots hold; in
    a parallel block attention and feed-forward read the same x (GPT-J), through one norm or two."""

    def __init__(self, a: Architecture, tower: Tower, index: int) -> None:
        super().__init__()
        self.index, self.parallel = index, a.parallel
        filled = SLOTS[a.norm_placement]
        relative = a.relative_bias is not None and (index == 0 or a.relative_bias.per_layer)
        self.attention_norms = Slots(a, filled if index or a.first_norm else ())
        self.attention = Attention(a, tower, relative=relative, sinks=a.attention_sinks)
        self.cross_norms = Slots(a, filled) if tower.cross else None
        self.cross = Attention(a, tower) if tower.cross else None
        self.ffn_norms = Slots(a, () if a.parallel == "shared" else filled)
        sparse = a.experts is not None and tower.distinct[index].sparse
        self.ffn = Experts(a, a.experts) if a.experts and sparse else FeedForward(a, tower.d_ff)
        between = () if a.parallel != "none" else ("after_attention",)
        crossing = ("cross_branch", "after_cross") if tower.cross else ()
        self.sites = ("attention_branch", *between, *crossing, "ffn_branch", "output")

    def forward(
        self, x: Tensor, sight: Sight, memory: Tensor | None, across: Sight | None, cache: Cache | None
    ) -> Tensor:
        """``(b, n, d_model)`` -> the same. ``memory`` ``(b, m, d_model)`` is an encoder's; a cache keeps its keys."""
        entered = self.attention_norms.enter(x)
        branch = self.site("attention_branch", self.attention_norms.branch(self._attend(entered, sight, cache)))
        if self.parallel != "none":
            entered = entered if self.parallel == "shared" else self.ffn_norms.enter(x)
            feed = self.site("ffn_branch", self.ffn_norms.branch(self.ffn(entered)))
            return self.site("output", self.attention_norms.leave(x, branch) + feed)
        x = self.site("after_attention", self.attention_norms.leave(x, branch))
        if self.cross is not None and self.cross_norms is not None and across is not None:
            y = self._cross(self.cross, self.cross_norms.enter(x), memory, across, cache)
            branch = self.site("cross_branch", self.cross_norms.branch(y))
            x = self.site("after_cross", self.cross_norms.leave(x, branch))
        branch = self.site("ffn_branch", self.ffn_norms.branch(self.ffn(self.ffn_norms.enter(x))))
        return self.site("output", self.ffn_norms.leave(x, branch))

    def _attend(self, x: Tensor, sight: Sight, cache: Cache | None) -> Tensor:
        queries = self.attention.queries(x, sight)
        keys, values = self.attention.keys_values(x, sight)
        if cache is not None:
            keys, values = cache.append(self.index, keys, values)
        return self.attention(queries, keys, values, sight)

    def _cross(self, cross: Attention, x: Tensor, memory: Tensor | None, across: Sight, cache: Cache | None) -> Tensor:
        kept = cache.memory[self.index] if cache is not None else None
        if kept is None:
            assert memory is not None
            kept = cross.keys_values(memory, across)
            if cache is not None:
                cache.memory[self.index] = kept
        return cross(cross.queries(x, across), *kept, across)
