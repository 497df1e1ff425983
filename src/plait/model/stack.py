"""Stack: the layers of one tower, and the masks, rotations and biases that layers of one type share in a pass."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from plait.architecture import Architecture, Layer, Rope, Tower
from plait.model.attention import Sight
from plait.model.block import Block
from plait.model.cache import Cache
from plait.model.mask import Places, visible
from plait.model.norm import Norm
from plait.model.position import Rotation, alibi, alibi_slopes, table_type
from plait.model.sites import Part


class Stack(Part):
    """A tower. ``layers`` in order, then the final ``norm`` where there is one."""

    sites = ("output",)

    def __init__(self, a: Architecture, tower: Tower) -> None:
        super().__init__()
        self.tower, self.alibi = tower, a.alibi
        self.layers = nn.ModuleList(Block(a, tower, index) for index in range(len(tower.distinct)))
        self.norm = Norm(a, a.d_model) if a.final_norm else None
        ropes = {layer.rope for layer in tower.layers}
        self.rotations = {rope: Rotation(rope, tower.d_head) for rope in ropes if rope is not None}

    @property
    def blocks(self) -> list[Block]:
        """The layers as they run, one perhaps several times."""
        return [cast(Block, self.layers[i]) for i in self.tower.schedule]

    def forward(
        self,
        x: Tensor,
        places: Places,
        held: Places,
        totals: Tensor,
        *,
        memory: Tensor | None = None,
        memory_places: Places | None = None,
        cache: Cache | None = None,
        first: int = 0,
    ) -> Tensor:
        """``(b, n, d_model)`` -> the same. ``held`` are the places of all keys, those in the cache first; ``totals``
        ``(b,)`` how long each row is, or is declared to become. ``x`` is what the layers before ``first`` gave."""
        across = None
        if memory_places is not None:
            across = Sight(allowed=visible(places, memory_places, causal=False, window=None))
        sights: dict[tuple[int | None, Rope | None, int], Sight] = {}
        penalties = self._penalties(places, held, x) if self.alibi is not None else None
        bias = penalties  # added to scores, (b, h, q, k)
        for index, (block, kind) in enumerate(zip(self.blocks, self.tower.layers, strict=True)):
            start = cache.starts[index] if cache is not None else 0
            table = block.attention.relative_bias
            if table is not None:
                relative = table(held.positions.unsqueeze(1) - places.positions.unsqueeze(2))
                bias = relative if penalties is None else relative + penalties
                sights.clear()
            sight = (kind.window, kind.rope, start)
            if sight not in sights:
                sights[sight] = self._sight(kind, places, held.from_slot(start), totals, x, bias, start)
            if index >= first:
                x = block(x, sights[sight], memory, across, cache)
        x = x if self.norm is None else self.norm(x)
        return self.site("output", x)

    def _penalties(self, places: Places, held: Places, x: Tensor) -> Tensor:
        """ALiBi's, ``(b, h, q, k)``."""
        assert self.alibi is not None
        slopes = torch.tensor(alibi_slopes(self.tower.n_heads), dtype=table_type(x.dtype), device=x.device)
        return alibi(self.alibi, places.positions, held.positions, slopes, self.tower.attention_scale).to(x.dtype)

    def _sight(
        self, kind: Layer, places: Places, held: Places, totals: Tensor, x: Tensor, bias: Tensor | None, start: int
    ) -> Sight:
        n, keys = places.order.shape[1], held.order.shape[1]
        alike = places.documents is None and held.documents is None
        window = kind.window if kind.window is not None and kind.window < keys else None
        square = self.tower.causal and alike and window is None and n == keys and bias is None and n > 1
        last_sees_all = self.tower.causal and alike and window is None and n == 1
        allowed = None
        if not square and not last_sees_all:
            allowed = visible(places, held, causal=self.tower.causal, window=window)
        rotation = self.rotations[kind.rope] if kind.rope is not None else None
        return Sight(
            allowed=allowed,
            square=square,
            rotation=rotation,
            table=rotation.table(places.positions, totals, x.dtype) if rotation else None,
            bias=None if bias is None else bias[..., start:],
        )


def row_lengths(places: Places) -> Tensor:
    """Real tokens a row, ``(b or 1,)``: what a scaling by length goes by where nothing else is declared."""
    if places.documents is None:
        return torch.full((1,), places.order.shape[1], device=places.order.device)
    return (places.documents > 0).sum(1)
