"""Cache: the keys and values of tokens already read, per layer, so that a new token costs only itself.

Legend: b batch, k key and value heads, n new tokens, s slots held, d head width. A slot is a place in the buffers; a
row with padding has more slots than real tokens.
"""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.model.mask import Places, in_a_row

Pair = tuple[Tensor, Tensor]  # keys and values


class CacheFull(ValueError):  # noqa: N818 - it reads as what happened
    """More tokens than the capacity that was asked for."""


class Cache:
    """Grows as needed, or holds exactly ``capacity`` slots. With ``sliding`` a windowed layer drops what no window can
    see any more. ``total_lengths`` ``(b,)``: how long each row will become, which scalings that depend on length go by.

    ``dtype`` and ``device`` hold until the first token; what is stored is what attention computes. Raises
    ``ValueError`` for an encoder, and ``CacheFull`` later, when more tokens come than ``capacity``.
    """

    def __init__(
        self,
        architecture: Architecture,
        batch: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        capacity: int | None = None,
        total_lengths: Tensor | None = None,
        sliding: bool = False,
    ) -> None:
        if architecture.kind == "encoder":
            raise ValueError("an encoder reads its whole input at once; only a decoder takes a cache.")
        if total_lengths is not None and total_lengths.shape != (batch,):
            raise ValueError(
                f"total_lengths: shape {tuple(total_lengths.shape)} does not fit {batch} rows; give ({batch},)."
            )
        tower = architecture.tower("decoder")
        self.batch, self.capacity, self.dtype, self.device = batch, capacity, dtype, torch.device(device)
        self.total_lengths = total_lengths
        self.slots = 0
        self.places: Places | None = None  # None: rows are alike and without padding
        self.memory_places: Places | None = None  # of the source tokens, once an encoder has run
        self.windows = [layer.window if sliding else None for layer in tower.layers]
        self.starts = [0] * tower.n_layers  # the first slot each layer still holds
        self._offsets = [0] * tower.n_layers  # where in its buffer that slot lies
        self._shape = (tower.n_kv_heads, tower.d_head)
        self._buffers: list[Pair | None] = [None] * tower.n_layers
        self.memory: list[Pair | None] = [None] * tower.n_layers  # keys and values of an encoder's states

    # What is held

    @property
    def lengths(self) -> Tensor:
        """Real tokens in each row, ``(b,)`` int64."""
        if self.places is None or self.places.documents is None:
            return torch.full((self.batch,), self.slots, device=self.device)
        return (self.places.documents > 0).sum(1).expand(self.batch)

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values held, the encoder's among them; growing room is not counted."""
        heads, width = self._shape
        slot = 2 * self.batch * heads * width * self.dtype.itemsize
        memory = sum(t.numel() * t.element_size() for pair in self.memory if pair for t in pair)
        return memory + sum(slot * (self.slots - start) for start in self.starts)

    def held(self) -> Places:
        """Places of all slots so far, ``(b or 1, slots)``."""
        return self.places or in_a_row(0, self.slots, self.device)

    # A forward pass: begin, append for each layer, commit

    def begin(self, new: Places) -> tuple[Places, Places]:
        """Places for tokens that follow what is held: theirs, and those of every slot including them."""
        n = new.order.shape[1]
        if self.capacity is not None and self.slots + n > self.capacity:
            raise CacheFull(f"cache: {self.slots} tokens and {n} more exceed its capacity of {self.capacity}.")
        if new.regular and self.places is None:
            return in_a_row(self.slots, n, new.order.device), in_a_row(0, self.slots + n, new.order.device)
        before = self.held()
        counted = self.lengths.unsqueeze(1)  # b 1
        positions = new.positions
        if new.counted and self.slots:  # go on from the last real token's position
            positions = positions + (self._last_position() + 1).unsqueeze(1)
        later = Places(positions, new.order + counted, new.documents, new.counted)
        return later, before.then(later)

    def _last_position(self) -> Tensor:
        """Of each row's last real token, ``(b or 1,)``; -1 where there is none."""
        places = self.held()
        if places.real is None:
            return places.positions[:, -1]
        count = torch.where(places.real, places.order, -1)
        last = places.positions.expand(len(count), -1).gather(1, count.argmax(1, keepdim=True))[:, 0]
        return torch.where(places.real.any(1), last, -1)

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store ``(b, k, n, d)`` behind what the layer holds; the whole, ``(b, k, s, d)``, to attend to."""
        held, n = self.slots - self.starts[layer], keys.shape[2]
        self.dtype, self.device = keys.dtype, keys.device
        pair, offset = self._buffers[layer], self._offsets[layer]
        if pair is None or pair[0].shape[2] < offset + held + n:
            pair = self._grown(layer, keys, held + n), self._grown(layer, values, held + n)
            for new, old in zip(pair, self._buffers[layer] or (), strict=False):
                new[:, :, :held] = old[:, :, offset : offset + held]
            self._buffers[layer], self._offsets[layer], offset = pair, 0, 0
        for buffer, new in zip(pair, (keys, values), strict=True):
            buffer[:, :, offset + held : offset + held + n] = new
        return pair[0][:, :, offset : offset + held + n], pair[1][:, :, offset : offset + held + n]

    def _grown(self, layer: int, like: Tensor, needed: int) -> Tensor:
        window = self.windows[layer]
        if window is not None:
            room = needed + window
        else:
            room = self.capacity if self.capacity is not None else needed + max(needed, 64)
        return like.new_empty(like.shape[0], like.shape[1], room, like.shape[3])

    def commit(self, places: Places, memory_places: Places | None) -> None:
        """The tokens of this pass, of which ``places`` are the last, are part of the rows from now on."""
        self.slots = places.order.shape[1]
        self.places = None if places.regular else places
        self.memory_places = memory_places
        windowed = [(layer, window) for layer, window in enumerate(self.windows) if window is not None]
        padding = self.slots - int(self.lengths.min()) if windowed and self.places is not None else 0
        for layer, window in windowed:
            self._slide(layer, window, padding)

    def _slide(self, layer: int, window: int, padding: int) -> None:
        """Drop the slots that no later query can see: all but the last w - 1 real ones and the padding there."""
        drop = self.slots - (window - 1) - padding - self.starts[layer]
        if drop <= 0:
            return
        self.starts[layer] += drop
        self._offsets[layer] += drop
        pair = self._buffers[layer]
        if drop > window and pair is not None:  # a long prompt: give its memory back
            begin, end = self._offsets[layer], self._offsets[layer] + self.slots - self.starts[layer]
            self._buffers[layer] = pair[0][:, :, begin:end].clone(), pair[1][:, :, begin:end].clone()
            self._offsets[layer] = 0

    # Rows come, go and go back

    def truncate(self, lengths: int | Tensor) -> None:
        """Forget all but the first ``lengths`` real tokens of each row. ``ValueError`` where a window already dropped
        what would be needed again."""
        wanted = torch.as_tensor(lengths, device=self.device).expand(self.batch)
        if wanted.is_floating_point():
            raise ValueError(f"truncate: {wanted.tolist()} are not whole numbers of tokens.")
        if bool((wanted > self.lengths).any()) or bool((wanted < 0).any()):
            raise ValueError(f"truncate: rows hold {self.lengths.tolist()} tokens, not {wanted.tolist()}.")
        places, keep = self.held(), int(wanted.max())
        real = torch.ones_like(places.order, dtype=torch.bool) if places.real is None else places.real
        kept = real & (places.order < wanted.unsqueeze(1))
        slots = int(kept.any(0).nonzero().max()) + 1 if keep else 0
        if any(self.starts) and bool((wanted < self.lengths).any()):
            raise ValueError("truncate: a sliding cache dropped what earlier windows saw; use one that does not slide.")
        self.slots = slots
        if self.places is not None or bool((wanted != keep).any()):
            spread = (t.expand(self.batch, -1)[:, :slots] for t in (places.positions, places.order, kept.long()))
            self.places = Places(*spread, counted=places.counted)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was, in everything held; rows may repeat or be left out."""
        rows = rows.to(self.device)

        def take(t: Tensor) -> Tensor:
            return t.expand(self.batch, *t.shape[1:]).index_select(0, rows)

        def take_pair(pair: Pair | None) -> Pair | None:
            return None if pair is None else (take(pair[0]), take(pair[1]))

        def take_places(p: Places | None) -> Places | None:
            if p is None:
                return None
            documents = None if p.documents is None else take(p.documents)
            return Places(take(p.positions), take(p.order), documents, p.counted)

        self._buffers = [take_pair(pair) for pair in self._buffers]
        self.memory = [take_pair(pair) for pair in self.memory]
        self.places, self.memory_places = take_places(self.places), take_places(self.memory_places)
        if self.total_lengths is not None:
            self.total_lengths = take(self.total_lengths)
        self.batch = len(rows)

    def fork(self, n: int) -> Self:
        """A copy of its own in which every row stands ``n`` times, side by side."""
        twin = copy.copy(self)
        twin.starts, twin._offsets = list(self.starts), list(self._offsets)
        twin.reorder(torch.arange(self.batch, device=self.device).repeat_interleave(n))
        return twin
