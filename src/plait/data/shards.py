"""Shards: the files of a token store, each whole or not there at all.

A file is the tokens (uint16 or uint32), zeros to the next multiple of 8 bytes, where in it documents begin (int64), and
a JSON footer with its length and digest. The footer says of what the file is a part, how many pieces of text it is made
of, and the checksum of what stands before it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.data.error import DataError

_END = 8 + 32  # bytes: the footer's length and digest
_CHUNK = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Footer:
    """``key`` and ``number`` say which shard of which store; ``type`` is numpy's name of the tokens' type."""

    key: str
    number: int
    type: str
    tokens: int
    documents: int
    pieces: int
    checksum: int


@dataclass(frozen=True)
class Shard:
    """A mapped file: ``tokens``, and in ``starts`` which of them begin a document."""

    footer: Footer
    tokens: NDArray[np.integer[Any]]
    starts: NDArray[np.int64]


def shard_path(folder: Path, number: int) -> Path:
    """The file of a shard."""
    return folder / f"{number:06}.tokens"


def write_shard(
    folder: Path, key: str, number: int, tokens: NDArray[np.integer[Any]], starts: NDArray[np.int64], pieces: int
) -> None:
    """Write a shard, which takes its name when all of it is on the disk. Raises DataError where the disk is full."""
    parts = (tokens.tobytes(), bytes(-tokens.nbytes % 8), starts.astype(np.int64).tobytes())
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    said = Footer(
        key=key,
        number=number,
        type=tokens.dtype.name,
        tokens=len(tokens),
        documents=len(starts),
        pieces=pieces,
        checksum=checksum,
    )
    footer = json.dumps(asdict(said)).encode()
    write_whole(shard_path(folder, number), (*parts, footer, len(footer).to_bytes(8, "little"), _digest(footer)))


def write_whole(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file under another name, push it to the disk, and give it its own. Raises DataError, and leaves nothing,
    where that fails."""
    new = path.with_name(f"{path.name}-{secrets.token_hex(4)}.writing")
    try:
        with new.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        raise DataError(
            f"{path}: it cannot be written ({error.strerror or error}); make room, or choose another folder as cache."
        ) from None
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def read_shard(folder: Path, key: str, number: int) -> Shard | None:
    """A shard, mapped; None where it is missing, cut short, changed, or of another store."""
    path = shard_path(folder, number)
    try:
        footer = _footer(path)
        if (footer.key, footer.number) != (key, number):
            return None
        size = np.dtype(footer.type).itemsize
        aligned = -(-footer.tokens * size // 8) * 8
        if _checksum(path, aligned + 8 * footer.documents) != footer.checksum:
            return None
        return Shard(
            footer, _mapped(path, footer.type, 0, footer.tokens), _mapped(path, "int64", aligned, footer.documents)
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _mapped(path: Path, type: str, offset: int, length: int) -> NDArray[Any]:
    return np.memmap(path, np.dtype(type), "r", offset, (length,)) if length else np.empty(0, np.dtype(type))


def _footer(path: Path) -> Footer:
    """What the file's end says; ValueError where it is not whole."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END) - _END
        if end < 0:
            raise ValueError("too short")
        file.seek(end)
        length, digest = int.from_bytes(file.read(8), "little"), file.read()
        if length > end:
            raise ValueError("cut short")
        file.seek(end - length)
        data = file.read(length)
        if _digest(data) != digest:
            raise ValueError("not a shard")
        footer = Footer(**json.loads(data))
        size = np.dtype(footer.type).itemsize
        if -(-footer.tokens * size // 8) * 8 + 8 * footer.documents != end - length:
            raise ValueError("of another length than it says")
        return footer


def _checksum(path: Path, length: int) -> int:
    checksum = 0
    with path.open("rb") as file:
        while length and (chunk := file.read(min(_CHUNK, length))):
            checksum = zlib.crc32(chunk, checksum)
            length -= len(chunk)
    return checksum


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
