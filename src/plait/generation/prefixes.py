"""Prefixes: the caches of sequences already read, so that one that begins alike need not read its beginning again.

What a store holds is only true of the weights that computed it: each entry knows their identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plait.architecture import Architecture
from plait.generation.row import Request
from plait.generation.runner import RunnerCache


class _Prefix(NamedTuple):
    identity: str
    tokens: tuple[int, ...]
    cache: RunnerCache


class Prefixes:
    """A store of at most ``room`` tokens; the entry that was not used for longest goes first."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._held: list[_Prefix] = []  # the most recently used last

    @property
    def n_tokens(self) -> int:
        """Tokens held, those that stand in several entries counted in each."""
        return sum(len(entry.tokens) for entry in self._held)

    def find(self, identity: str, tokens: Sequence[int]) -> tuple[RunnerCache, int] | None:
        """A cache that holds the longest known beginning of ``tokens``, and its length; at least one token is left to
        be read. The cache is the caller's own. What other weights computed is dropped."""
        self._held = [entry for entry in self._held if entry.identity == identity]
        shared = [min(common(entry.tokens, tokens), len(tokens) - 1) for entry in self._held]
        for place in sorted(range(len(shared)), key=lambda i: shared[i], reverse=True):
            entry, n = self._held[place], shared[place]
            if n == 0:
                return None
            cache = entry.cache.fork(1)
            if n < len(entry.tokens):
                try:
                    cache.truncate(n)
                except ValueError:  # a cache that slides can be gone on from, and not gone back in
                    continue
            self._held.append(self._held.pop(place))
            return cache, n
        return None

    def keep(self, identity: str, tokens: Sequence[int], cache: RunnerCache) -> None:
        """``cache``, from now on the store's, has read exactly ``tokens``. Entries that it goes on from are dropped; it
        is itself where one goes on from it."""
        if not 0 < len(tokens) <= self.room:
            return
        whole = tuple(tokens)
        if any(entry.identity == identity and entry.tokens[: len(whole)] == whole for entry in self._held):
            return
        self._held = [e for e in self._held if e.identity != identity or e.tokens != whole[: len(e.tokens)]]
        self._held.append(_Prefix(identity, whole, cache))
        while self.n_tokens > self.room:
            self._held.pop(0)


def shareable(architecture: Architecture, request: Request) -> bool:
    """Whether what a request's first tokens leave in a cache depends on nothing but them.

    Not so where a rotation is scaled by the length that the whole row is declared to have, nor where positions are the
    caller's own. An encoder-decoder's rows begin with one token and a source: there is nothing to save. With ``echo``
    every token of the prompt is scored, and so read.
    """
    layers = [layer for tower in architecture.towers for layer in tower.layers]
    scalings = [layer.rope.scaling for layer in layers if layer.rope is not None]
    by_length = any(scaling is not None and scaling.by_length for scaling in scalings)
    return not by_length and request.positions is None and request.source is None and not request.echo


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences have in common from the start."""
    n = min(len(one), len(other))
    return next((i for i in range(n) if one[i] != other[i]), n)
