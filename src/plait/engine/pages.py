"""Pages: keys and values of many sequences in blocks of 16 tokens, shared until one of the sharers writes.

A page of keys is a packed panel: 16 tokens side by side for each dimension of a head, so that scores are the same
product that weights are multiplied by. Legend: g key and value heads, d head width, D the same rounded up to 16.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch import Tensor

PAGE = 16  # tokens
CPU = torch.device("cpu")


class Pages:
    """The storage of one space: for each layer, keys ``(pages, g, d, 16)`` and values ``(pages, g, 16, D)``; for all
    of them the tokens' ``positions`` ``(pages, 16)`` int32. It doubles when it is full; pages are counted references.
    """

    def __init__(
        self,
        n_layers: int,
        n_kv_heads: int,
        d_head: int,
        dtype: torch.dtype,
        pages: int = 8,
        device: torch.device = CPU,
    ) -> None:
        self.dtype, self.n_layers, self.device = dtype, n_layers, device
        self._keys, self._values = self.shapes(n_kv_heads, d_head)
        self.keys: list[Tensor] = [self._zeros(0, self._keys) for _ in range(n_layers)]
        self.values: list[Tensor] = [self._zeros(0, self._values) for _ in range(n_layers)]
        self.positions = np.zeros((0, PAGE), np.int32)
        self._references: list[int] = []
        self._free: list[int] = []
        self._abandoned: deque[list[int]] = deque()
        self.version = 0  # of the storage: grows whenever its addresses change
        self.reserve(pages)

    def shapes(self, n_kv_heads: int, d_head: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of a page of keys, and of values."""
        return (n_kv_heads, d_head, PAGE), (n_kv_heads, PAGE, -(-d_head // PAGE) * PAGE)

    def _zeros(self, pages: int, shape: tuple[int, ...]) -> Tensor:
        return torch.zeros(pages, *shape, dtype=self.dtype, device=self.device)

    def reserve(self, pages: int) -> None:
        """Have at least so many pages free, growing once. Where memory does not suffice all is as good as before."""
        while self._abandoned:
            for page in self._abandoned.popleft():
                self.release(page)
        missing = pages - len(self._free)
        if missing <= 0:
            return
        held = len(self._references)
        total = held + max(missing, held if held > 8 else 0)

        def grown(old: Tensor, shape: tuple[int, ...]) -> Tensor:
            if len(old) >= total:  # of an attempt that failed later on
                return old
            new = self._zeros(total, shape)
            new[:held] = old[:held]
            return new

        self.version += 1

        for layer in range(self.n_layers):  # one after the other: only one tensor is there twice
            self.keys[layer] = grown(self.keys[layer], self._keys)
            self.values[layer] = grown(self.values[layer], self._values)
        positions = np.zeros((total, PAGE), np.int32)
        positions[:held] = self.positions
        self.positions = positions
        self._references += [0] * (total - held)
        self._free += range(total - 1, held - 1, -1)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all layers."""
        return sum(t[0].numel() * t.element_size() for t in (*self.keys, *self.values))

    def take(self) -> int:
        """A page of one's own."""
        self.reserve(1)
        page = self._free.pop()
        self._references[page] = 1
        return page

    def share(self, page: int) -> None:
        """One more sequence holds it."""
        self._references[page] += 1

    def release(self, page: int) -> None:
        """One sequence less holds it."""
        self._references[page] -= 1
        if self._references[page] == 0:
            self._free.append(page)

    def abandon(self, pages: list[int]) -> None:
        """They are released at the next chance: a finalizer, which may run amid anything, waits for no turn."""
        self._abandoned.append(pages)

    def own(self, page: int) -> int:
        """The page itself where nobody else holds it, otherwise a copy: what may be written."""
        if self._references[page] == 1:
            return page
        copy = self.take()
        for tensors in (self.keys, self.values):
            for tensor in tensors:
                tensor[copy] = tensor[page]
        self.positions[copy] = self.positions[page]
        self.release(page)
        return copy


class Run:
    """One sequence's tokens in a space: its pages, how many tokens they hold, and the position of the next."""

    def __init__(self, pages: Pages, capacity: int = PAGE) -> None:
        self.pages, self._held = pages, 0
        self.length, self.next_position = 0, 0
        self._table = np.zeros(max(1, -(-capacity // PAGE)), np.int32)

    @property
    def table(self) -> np.ndarray:
        """Page numbers, int32; entries beyond the length mean nothing."""
        return self._table

    def extend(self, positions: np.ndarray) -> None:
        """Make room for tokens at these positions; their keys and values are stored by the pass that follows."""
        n = len(positions)
        if n == 0:
            return
        end = self.length + n
        if self.length % PAGE:  # the last page is written on
            last = self._held - 1
            self._table[last] = self.pages.own(int(self._table[last]))
        needed = -(-end // PAGE)
        if needed > self._held:
            self.pages.reserve(needed - self._held)
            if needed > len(self._table):
                self._table = np.concatenate([self._table, np.zeros(max(needed, len(self._table)), np.int32)])
            for index in range(self._held, needed):
                self._table[index] = self.pages.take()
            self._held = needed
        if n == 1:
            self.pages.positions[self._table[self.length // PAGE], self.length % PAGE] = positions[0]
        else:
            places = np.arange(self.length, end)
            self.pages.positions[self._table[places // PAGE], places % PAGE] = positions
        self.length, self.next_position = end, int(positions[-1]) + 1

    def truncate(self, length: int) -> None:
        """Forget all but the first tokens."""
        needed = -(-length // PAGE)
        for index in range(needed, self._held):
            self.pages.release(int(self._table[index]))
        self._held = min(self._held, needed)
        self.length = length
        last = length - 1
        self.next_position = int(self.pages.positions[self._table[last // PAGE], last % PAGE]) + 1 if length else 0

    def fork(self) -> Run:
        """The same tokens once more, on the same pages."""
        twin = Run(self.pages)
        twin._table, twin._held = self._table.copy(), self._held
        twin.length, twin.next_position = self.length, self.next_position
        for index in range(self._held):
            self.pages.share(int(self._table[index]))
        return twin

    def __del__(self) -> None:
        self.pages.abandon(self._table[: self._held].tolist())
