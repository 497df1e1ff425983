"""Tokenising: one run over texts, which writes the shards of a store that are missing.

A shard is full after the piece of text by which it has so many tokens, so where one ends follows from the texts alone;
a shard that is there stands for as many pieces as it says, which are read and not tokenised.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.data.documents import PIECE, Documents, Piece
from plait.data.error import DataError
from plait.data.progress import watched
from plait.data.shards import Shard, read_shard, write_shard, write_whole
from plait.data.tokens import Tokens

WHOLE = "whole.json"  # written last: how many shards there are, and what was left out


class Encoder(Protocol):
    """What the store asks of a tokenizer: ``plait.Tokenizer`` is one."""

    @property
    def prefix(self) -> tuple[int, ...]:
        """The ids before a text."""
        ...

    @property
    def suffix(self) -> tuple[int, ...]:
        """The ids after it."""
        ...

    @property
    def eos(self) -> int | None:
        """The id that ends a text."""
        ...

    def __len__(self) -> int: ...

    def encode_batch(self, texts: Sequence[str], specials: bool = True, *, control: bool = True) -> list[list[int]]:
        """The ids of each text."""
        ...

    def save(self, folder: str | Path) -> None:
        """Write its files."""
        ...


@dataclass(kw_only=True)
class Build:
    """One run; ``full`` tokens make a shard, and ``before`` and ``after`` are the ids around a document."""

    folder: Path
    key: str
    tokenizer: Encoder
    documents: Documents
    lowercase: bool
    before: tuple[int, ...]
    after: tuple[int, ...]
    full: int
    pieces: Iterator[Piece] = field(default_factory=lambda: iter(()))
    ready: deque[tuple[Piece, NDArray[np.unsignedinteger]]] = field(default_factory=deque)  # tokenised, not yet written

    def run(self) -> Tokens:
        """Write them, and what says that the store is whole."""
        for stale in self.folder.glob("*.writing"):
            stale.unlink(missing_ok=True)
        documents = self.documents
        shards: list[Shard] = []
        with watched("tokenising", sum(source.size for source in documents.sources)) as read:
            self.pieces = _told(documents, read)
            while True:
                shard = read_shard(self.folder, self.key, len(shards))
                if shard is not None:
                    self._skip(shard.footer.pieces)
                elif (shard := self._shard(len(shards))) is None:
                    break
                shards.append(shard)
        said = {"shards": len(shards), "counts": asdict(documents.counts)}
        write_whole(self.folder / WHOLE, [json.dumps(said).encode()])
        return Tokens.of(shards, documents.counts)

    def _skip(self, n: int) -> None:
        while n and self.ready:
            self.ready.popleft()
            n -= 1
        if sum(1 for _ in islice(self.pieces, n)) < n:
            raise DataError(f"{self.documents.sources[0].name}: the texts changed while they were read; start again.")

    def _shard(self, number: int) -> Shard | None:
        """Tokenise and write the next one; None where there is no text left."""
        arrays: list[NDArray[np.unsignedinteger]] = []
        starts: list[int] = []
        tokens = pieces = 0
        while tokens < self.full and (found := self._next()) is not None:
            piece, ids = found
            if piece.first:
                starts.append(tokens)
            arrays.append(ids)
            tokens += len(ids)
            pieces += 1
        if not pieces:
            return None
        write_shard(self.folder, self.key, number, np.concatenate(arrays), np.array(starts, np.int64), pieces)
        shard = read_shard(self.folder, self.key, number)
        if shard is None:
            raise DataError(f"{self.folder}: what was written there reads otherwise; choose another folder as cache.")
        return shard

    def _next(self) -> tuple[Piece, NDArray[np.unsignedinteger]] | None:
        if not self.ready:
            batch = _batch(self.pieces)
            type = np.dtype("uint16" if len(self.tokenizer) <= 1 << 16 else "uint32")
            texts = [piece.text.lower() if self.lowercase else piece.text for piece in batch]
            for piece, ids in zip(batch, self.tokenizer.encode_batch(texts, False, control=False), strict=True):
                whole = [*(self.before if piece.first else ()), *ids, *(self.after if piece.last else ())]
                self.ready.append((piece, np.array(whole, type)))
        return self.ready.popleft() if self.ready else None


def _batch(pieces: Iterator[Piece]) -> list[Piece]:
    """So much text that every core has some of it, few or many documents."""
    batch: list[Piece] = []
    characters = 0
    for piece in pieces:
        batch.append(piece)
        characters += len(piece.text)
        if characters >= PIECE * 4 * (os.cpu_count() or 1):
            break
    return batch


def _told(documents: Documents, read: Callable[[int], object]) -> Iterator[Piece]:
    before = 0
    for piece in documents:
        if documents.read != before:
            read(documents.read - before)
            before = documents.read
        yield piece
