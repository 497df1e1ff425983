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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.data.documents import PIECE, Counts, Documents, Each
from plait.data.error import DataError
from plait.data.progress import watched
from plait.data.shards import read_shard
from plait.data.sources import find, identity
from plait.data.tokenising import WHOLE, Build, Encoder
from plait.data.tokens import Tokens

VERSION = 1  # to be raised when the same texts would give other tokens than before
SHARD = 1 << 25  # tokens, from which on a shard is full


def tokenised(
    names: str | Path | Iterable[str | Path],
    tokenizer: Encoder,
    *,
    text_field: str = "text",
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
        text_field, each: ``field`` and ``each`` of ``plait.data.documents.Documents``.
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
    settings = {"field": text_field, "each": each, "lowercase": lowercase, "before": [*before], "after": [*after]}
    with entry([VERSION, PIECE, shard, contents, tokenizer_identity(tokenizer), settings], cache) as (folder, key):
        tokens = _found(folder, key)
        if tokens is None:
            build = Build(
                folder=folder,
                key=key,
                tokenizer=tokenizer,
                documents=Documents(sources, field=text_field, each=each),
                lowercase=lowercase,
                before=before,
                after=tuple(after),
                full=shard,
            )
            tokens = build.run()
    return tokens.saying(other_files=others)


def cache_folder() -> Path:
    """Where tokens are kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # a relative one is to be ignored, says its specification
    place = os.environ.get("PLAIT_CACHE") or (base if base.is_absolute() else Path("~/.cache")) / "plait"
    return Path(place).expanduser() / "tokens"


@contextlib.contextmanager
def entry(parts: Any, cache: str | Path | None) -> Iterator[tuple[Path, str]]:
    """The folder and the key of what ``parts``, plain data, decide, held against another start.

    The system lets go of it when a process ends, however it does. Raises DataError where there can be no such folder.
    """
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]
    folder = (cache_folder() if cache is None else Path(cache).expanduser()) / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: there can be no cache of tokens ({error.strerror}); choose another.") from None
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):  # no such lock here, or a cache that may only be read
            import fcntl

            fcntl.flock(stack.enter_context((folder / "lock").open("w")), fcntl.LOCK_EX)
        yield folder, key


def tokenizer_identity(tokenizer: Encoder) -> str:
    """The digest of all that a tokenizer saves."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                content = file.read_bytes()
                digest.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _found(folder: Path, key: str) -> Tokens | None:
    """The store, if it is whole."""
    try:
        said = json.loads((folder / WHOLE).read_text("utf-8"))
        counts, number = Counts(**said["counts"]), int(said["shards"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    shards = [read_shard(folder, key, index) for index in range(number)]
    return None if None in shards else Tokens.of([shard for shard in shards if shard is not None], counts)
