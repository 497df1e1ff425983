"""The store: texts tokenised once into mapped shards, in the user's cache, under a key of all that decides them.

The folder is ``tokens`` in ``$PLAIT_CACHE``, else ``$XDG_CACHE_HOME/plait``, else ``~/.cache/plait``. The key is of the
files' content, the tokenizer's own files, and the settings; names and dates of files do not matter. Shards are written
one by one: what a broken-off start has written is kept by the next, which reads the text again but tokenises only what
is missing; so it is with a shard that is damaged. Two starts at once wait for each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plait.data.documents import PIECE, Counts, Documents, Each, Piece
from plait.data.error import DataError
from plait.data.progress import watched
from plait.data.shards import Shard, read_shard, write_shard, write_whole
from plait.data.sources import find, identity
from plait.data.tokens import Tokens

VERSION = 1  # to be raised when the same texts would give other tokens than before
SHARD = 1 << 25  # tokens, from which on a shard is full
_WHOLE = "whole.json"


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


def tokenised(
    names: str | Path | Iterable[str | Path],
    tokenizer: Encoder,
    *,
    field: str = "text",
    each: Each = "file",
    lowercase: bool = False,
    before: Sequence[int] | None = None,
    after: Sequence[int] | None = None,
    cache: str | Path | None = None,
    shard: int = SHARD,
) -> Tokens:
    """The tokens of texts: from the cache, or tokenised now, on all cores, with a bar where a terminal watches.

    Args:
        names: files, folders, data sets of the hub: see ``plait.data.sources``.
        tokenizer: cuts the texts; control strings in them are text.
        field, each: see ``plait.data.documents.Documents``.
        lowercase: texts are lower-cased first.
        before, after: the ids around each document; none: the tokenizer's own, and the id that ends a text after it.
        cache: the folder, instead of the user's.
        shard: tokens of a file.

    Raises DataError where nothing can be read, or the cache cannot be written.
    """
    sources, others = find(names)
    before = tokenizer.prefix if before is None else tuple(before)
    if after is None:
        after = tokenizer.suffix
        after = after if tokenizer.eos is None or tokenizer.eos in after else (*after, tokenizer.eos)
    with watched("reading", sum(source.size for source in sources)) as read:
        contents = [identity(source, read) for source in sources]
    settings = {"field": field, "each": each, "lowercase": lowercase, "before": [*before], "after": [*after]}
    parts = [VERSION, PIECE, shard, contents, _tokenizer_identity(tokenizer), settings]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]
    folder = (cache_folder() if cache is None else Path(cache).expanduser()) / key
    documents = Documents(sources, field=field, each=each)
    build = _Build(folder, key, tokenizer, documents, lowercase, before, tuple(after), shard)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: there can be no cache of tokens ({error.strerror}); choose another.") from None
    with _alone(folder):
        tokens = _found(folder, key) or build.run()
    return tokens.saying(other_files=others)


def cache_folder() -> Path:
    """Where tokens are kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # a relative one is to be ignored, says its specification
    place = os.environ.get("PLAIT_CACHE") or (base if base.is_absolute() else Path("~/.cache")) / "plait"
    return Path(place).expanduser() / "tokens"


def _tokenizer_identity(tokenizer: Encoder) -> str:
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                content = file.read_bytes()
                digest.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder against another start; the system lets go of it when a process ends, however it does."""
    try:
        import fcntl
    except ImportError:  # where there is no such lock, both write the same files
        yield
        return
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _found(folder: Path, key: str) -> Tokens | None:
    """The store, if it is whole."""
    try:
        said = json.loads((folder / _WHOLE).read_text("utf-8"))
        counts, number = Counts(**said["counts"]), int(said["shards"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    shards = [read_shard(folder, key, index) for index in range(number)]
    return None if None in shards else Tokens.of([shard for shard in shards if shard is not None], counts)


class _Build:
    """One run over the texts, which writes the shards that are missing."""

    def __init__(
        self,
        folder: Path,
        key: str,
        tokenizer: Encoder,
        documents: Documents,
        lowercase: bool,
        before: tuple[int, ...],
        after: tuple[int, ...],
        full: int,
    ) -> None:
        self.folder, self.key, self.tokenizer, self.documents = folder, key, tokenizer, documents
        self.lowercase, self.before, self.after, self.full = lowercase, before, after, full
        self.type = np.dtype("uint16" if len(tokenizer) <= 1 << 16 else "uint32")
        self.pieces: Iterator[Piece] = iter(())
        self.ready: deque[tuple[Piece, NDArray[np.unsignedinteger]]] = deque()

    def run(self) -> Tokens:
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
        write_whole(self.folder / _WHOLE, [json.dumps(said).encode()])
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
            texts = [piece.text.lower() if self.lowercase else piece.text for piece in batch]
            for piece, ids in zip(batch, self.tokenizer.encode_batch(texts, False, control=False), strict=True):
                whole = [*(self.before if piece.first else ()), *ids, *(self.after if piece.last else ())]
                self.ready.append((piece, np.array(whole, self.type)))
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


def _told(documents: Documents, read: Any) -> Iterator[Piece]:
    before = 0
    for piece in documents:
        if documents.read != before:
            read(documents.read - before)
            before = documents.read
        yield piece
