"""Cache: the keys and values of tokens already read, per layer, so that a new token costs only itself.

Legend: b batch, k key and value heads, n new tokens, s slots held, d head width. A slot is a place in the buffers; a row
with padding has more slots than real tokens.
"""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.model.mask import Places, in_a_row


class CacheFull(ValueError):
    """More tokens than the capacity that was asked for."""


class Cache:
    """Grows as needed, or holds exactly ``capacity`` slots. With ``sliding`` a windowed layer drops what no window can
    see any more. ``total_lengths`` ``(b,)``: how long each row will become, which scalings that depend on length go by.

    ``dtype`` and ``device`` say what ``nbytes`` counts before the first token; what is stored is what attention computes.
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
        self._keys: list[Tensor | None] = [None] * tower.n_layers
        self._values: list[Tensor | None] = [None] * tower.n_layers
        self.memory: list[tuple[Tensor, Tensor] | None] = [None] * tower.n_layers

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

    def begin(self, new: Places, regular: bool) -> tuple[Places, Places]:
        """Places for tokens that follow what is held: theirs, and those of every slot including them.

        ``regular``: neither mask nor positions were given, so rows stay alike.
        """
        n = new.order.shape[1]
        if self.capacity is not None and self.slots + n > self.capacity:
            raise CacheFull(f"cache: {self.slots} tokens and {n} more exceed its capacity of {self.capacity}.")
        if regular and self.places is None:
            return in_a_row(self.slots, n, new.order.device), in_a_row(0, self.slots + n, new.order.device)
        before = self.held()
        counted = self.lengths.unsqueeze(1)  # b 1
        positions = new.positions
        if positions is new.order and self.slots:  # go on from the last real token's position
            positions = positions + (self._last_position() + 1).unsqueeze(1)
        later = Places(positions, new.order + counted, new.documents)
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
        offset = self._offsets[layer]
        self.dtype, self.device = keys.dtype, keys.device
        if self._keys[layer] is None or self._keys[layer].shape[2] < offset + held + n:
            for store, new in ((self._keys, keys), (self._values, values)):
                buffer = store[layer]
                grown = new.new_empty(new.shape[0], new.shape[1], self._room(layer, held + n), new.shape[3])
                if buffer is not None:
                    grown[:, :, :held] = buffer[:, :, offset : offset + held]
                store[layer] = grown
            self._offsets[layer] = offset = 0
        whole = self._keys[layer], self._values[layer]
        for buffer, new in zip(whole, (keys, values), strict=True):
            buffer[:, :, offset + held : offset + held + n] = new
        return whole[0][:, :, offset : offset + held + n], whole[1][:, :, offset : offset + held + n]

    def _room(self, layer: int, needed: int) -> int:
        window = self.windows[layer]
        if window is not None:
            return needed + window
        return self.capacity if self.capacity is not None else needed + max(needed, 64)

    def commit(self, places: Places, n: int, regular: bool) -> None:
        """The tokens of this pass are part of the rows from now on."""
        self.slots += n
        if not (regular and self.places is None):
            self.places = places
        for layer, window in enumerate(self.windows):
            if window is not None:
                self._slide(layer, window)

    def _slide(self, layer: int, window: int) -> None:
        """Drop the slots that no later query can see: all but the last w - 1 real ones, and the padding between them."""
        padding = 0 if self.places is None else self.slots - int(self.lengths.min())
        drop = self.slots - (window - 1) - padding - self.starts[layer]
        if drop <= 0:
            return
        self.starts[layer] += drop
        self._offsets[layer] += drop
        if drop > window:  # a long prompt: give its memory back
            for store in (self._keys, self._values):
                buffer = store[layer]
                assert buffer is not None
                begin = self._offsets[layer]
                store[layer] = buffer[:, :, begin : begin + self.slots - self.starts[layer]].clone()
            self._offsets[layer] = 0

    # Rows come, go and go back

    def truncate(self, lengths: int | Tensor) -> None:
        """Forget all but the first ``lengths`` real tokens of each row. ``ValueError`` where a window already dropped
        what would be needed again."""
        wanted = torch.as_tensor(lengths, device=self.device).expand(self.batch)
        if bool((wanted > self.lengths).any()) or bool((wanted < 0).any()):
            raise ValueError(f"truncate: rows hold {self.lengths.tolist()} tokens, not {wanted.tolist()}.")
        places = self.held()
        keep = int(wanted.max())
        slots = (
            keep
            if places.real is None
            else int(((places.order < keep) & places.real).any(0).nonzero().max()) + 1
            if keep
            else 0
        )
        if slots < self.slots and any(start > 0 for start in self.starts):
            raise ValueError(
                "truncate: a sliding cache has dropped what earlier windows saw; use one that does not slide."
            )
        self.slots = slots
        if self.places is not None or bool((wanted != keep).any()):
            real = torch.ones_like(places.order, dtype=torch.bool) if places.real is None else places.real
            forget = places.order >= wanted.unsqueeze(1)
            documents = (real & ~forget).long()
            expand = lambda t: t.expand(self.batch, -1)[:, :slots]  # noqa: E731
            self.places = Places(expand(places.positions), expand(places.order), expand(documents))

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was, in everything held; rows may repeat or be left out."""

        def take(t: Tensor | None) -> Tensor | None:
            return (
                None
                if t is None
                else (t if t.shape[0] == 1 and self.batch > 1 else t.index_select(0, rows.to(t.device)))
            )

        def take_places(p: Places | None) -> Places | None:
            if p is None:
                return None
            positions, order = (take(t.expand(self.batch, -1)) for t in (p.positions, p.order))
            documents = None if p.documents is None else take(p.documents.expand(self.batch, -1))
            assert positions is not None and order is not None
            return Places(positions, order, documents)

        self._keys, self._values = [take(t) for t in self._keys], [take(t) for t in self._values]
        self.memory = [
            None
            if pair is None
            else (pair[0].index_select(0, rows.to(pair[0].device)), pair[1].index_select(0, rows.to(pair[1].device)))
            for pair in self.memory
        ]
        self.places, self.memory_places = take_places(self.places), take_places(self.memory_places)
        self.total_lengths = take(self.total_lengths)
        self.batch = len(rows)

    def fork(self, n: int) -> Self:
        """A copy of its own in which every row stands ``n`` times, side by side."""
        twin = copy.copy(self)
        twin.starts, twin._offsets = list(self.starts), list(self._offsets)
        twin.reorder(torch.arange(self.batch, device=self.device).repeat_interleave(n))
        return twin
