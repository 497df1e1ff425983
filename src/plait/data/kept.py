"""Kept: samples made into ids once, kept in a store's shards, and mapped from there by every later start.

A sample has a row of ids in each of some lanes: source and target, or ids and what is asked at each. In the shards
every row is a document, and those of a sample stand one behind the other:

    source  target  source  target  ...           in the file
    begin   begin   begin   begin                  the footer's starts: every second is a source's

What is found under the key is whole, with the counts of what was left out, or all of it is made anew.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from plait.data.documents import Counts
from plait.data.error import DataError
from plait.data.lines import Tally, ending, one_file
from plait.data.progress import watched
from plait.data.rows import Ragged
from plait.data.shards import Shard, read_shard, write_shard, write_whole
from plait.data.sources import identity
from plait.data.store import SHARD, entry, tokenizer_identity
from plait.data.tokenising import WHOLE, Encoder
from plait.data.tokens import Tokens

VERSION = 1  # to be raised when the same samples would give other ids than before

Lanes = tuple[Ragged, ...]
Make = Callable[[Tally], Iterable[Sequence[Sequence[int]]]]  # counts into the tally what it reads and leaves out


def kept(
    paths: Sequence[str | Path],
    tokenizer: Encoder,
    make: Make,
    *,
    settings: Any,
    cache: str | Path | None = None,
    shard: int = SHARD,
) -> tuple[Lanes, Tally]:
    """The samples of files, a ``Ragged`` for each lane, and what was left out: from the cache, or made now.

    Args:
        paths: the files.
        tokenizer: cuts the texts.
        make: yields the samples, each the rows of its lanes.
        settings: plain data, of all else that decides what ``make`` yields.
        cache: the folder, instead of the user's.
        shard: ids of a file.

    Raises DataError where nothing can be read, or the cache cannot be written.
    """
    sources = [one_file(path) for path in paths]
    size = sum(source.size for source in sources)
    with watched("reading", size) as read:
        contents = [[ending(source.name), *identity(source, read)] for source in sources]
    tokenizers = [tokenizer_identity(one) for one in (tokenizer, getattr(tokenizer, "target", None)) if one is not None]
    with entry(["samples", VERSION, shard, contents, tokenizers, settings], cache) as (folder, key):
        found = _found(folder, key)
        if found is None:
            with watched("tokenising", size) as read:
                _write(folder, key, make, shard, read)
            found = _found(folder, key)
        if found is None:
            raise DataError(f"{folder}: what was written there reads otherwise; choose another folder as cache.")
        return found


def _write(folder: Path, key: str, make: Make, full: int, read: Callable[[int], object]) -> None:
    """Shards, and at last what says that they are whole."""
    for stale in (folder / WHOLE, *folder.glob("*.writing")):
        stale.unlink(missing_ok=True)
    tally = Tally()
    ids, starts = array("i"), array("q")
    shards = samples = lanes = told = 0

    def write() -> None:
        write_shard(folder, key, shards, np.array(ids, np.int32), np.array(starts, np.int64), samples)

    for sample in make(tally):
        for row in sample:
            starts.append(len(ids))
            ids.extend(row)
        samples, lanes = samples + 1, len(sample)
        if tally.bytes > told:
            read(tally.bytes - told)
            told = tally.bytes
        if len(ids) >= full:
            write()
            ids, starts = array("i"), array("q")
            shards, samples = shards + 1, 0
    if samples:
        write()
        shards += 1
    said = {"shards": shards, "lanes": lanes, "tally": asdict(tally)}
    write_whole(folder / WHOLE, [json.dumps(said).encode()])


def _found(folder: Path, key: str) -> tuple[Lanes, Tally] | None:
    """The samples, if all of them are there."""
    try:
        said = json.loads((folder / WHOLE).read_text("utf-8"))
        tally, number, lanes = Tally(**said["tally"]), int(said["shards"]), int(said["lanes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    shards: list[Shard] = []
    for index in range(number):
        shard = read_shard(folder, key, index)
        if shard is None:
            return None
        shards.append(shard)
    tokens = Tokens.of(shards, Counts())
    firsts = [shard.starts + first for shard, first in zip(shards, tokens.bounds[:-1], strict=True)]
    edges = np.concatenate([*firsts, tokens.bounds[-1:]]).astype(np.int64)
    return tuple(Ragged(tokens.read, edges[:-1][lane::lanes], edges[1:][lane::lanes]) for lane in range(lanes)), tally
