"""The store: packed matrices in a file of the user's cache folder, so that a second start maps them and packs nothing.

The folder is ``packed`` in ``$PLAIT_CACHE``, else ``$XDG_CACHE_HOME/plait``, else ``~/.cache/plait``. Its files may be
deleted at any time; beyond ``LIMIT`` bytes the least recently used go by themselves.

A file is the panels of every matrix one after the other, each at a multiple of 64 bytes, then a JSON footer (what the
file is of, and where each matrix lies), its length and digest. It appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch

from plait.checkpoint.notice import notice
from plait.engine.packed import FORMATS, Packed, packed_bytes

Names = tuple[str, ...]  # of parameters, stacked in one matrix

VERSION = 2  # to be raised when the same weights would be packed, or rounded, otherwise than before
LIMIT = 10 * 10**9  # bytes of all files together
ENDING = ".packed"
_MAGIC = b"plait packed\0\0\0\1"
HUGE = 2 << 20  # bytes of a huge page
_ALIGNMENT, _END, _STALE = 64, 8 + 32, 24 * 3600  # bytes, footer's length and digest, seconds


def kept(parts: Mapping[str, str], names: Sequence[Names], pack: Callable[[Names], Packed]) -> dict[Names, Packed]:
    """The packed matrices of these names: from the store, or by ``pack``, one by one, and stored on the way.

    ``parts`` say what the numbers depend on: the weights' identity, the type asked for. Where nothing can be stored
    (a full disk, a folder that cannot be written) they are packed in memory, and a ``PlaitNotice`` says why.
    """
    found = load(parts, names)
    if found is not None:
        return found
    try:
        save(parts, names, pack)
    except OSError as error:
        notice(f"packed weights are not kept for the next start: {error.filename or folder()}: {error.strerror}.")
    else:
        found = load(parts, names)
    return found if found is not None else {name: pack(name) for name in names}


def folder() -> Path:
    """Where packed matrices are kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # a relative one is to be ignored, says its specification
    place = os.environ.get("PLAIT_CACHE") or (base if base.is_absolute() else Path("~/.cache")) / "plait"
    try:
        return Path(place).expanduser() / "packed"
    except RuntimeError:
        raise FileNotFoundError(errno.ENOENT, "there is no such home", str(place)) from None


def load(parts: Mapping[str, str], names: Sequence[Names]) -> dict[Names, Packed] | None:
    """The matrices, mapped from the file; ``None`` where there is none, or one that is not whole."""
    try:
        path = _path(parts)
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # private: nothing written reaches the file
        in_huge_pages(data)
        for start in range(
            0, len(data), HUGE
        ):  # read by a touch; told beforehand of what is needed, Linux reads in small
            data[start]
        entries = _entries(data, parts)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None
    if not set(names) <= entries.keys():
        return None
    with contextlib.suppress(OSError):  # a folder that may only be read
        os.utime(path)  # used now
    whole = torch.frombuffer(data, dtype=torch.uint8)
    return {
        name: Packed(format, rows, columns, whole[start : start + packed_bytes(format, rows, columns)])
        for name, (format, rows, columns, start) in entries.items()
        if name in set(names)
    }


def save(parts: Mapping[str, str], names: Sequence[Names], pack: Callable[[Names], Packed]) -> None:
    """Pack every matrix into a new file, which takes its name when it is whole. Raises ``OSError``."""
    path = _path(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.stem}-{secrets.token_hex(4)}.writing")
    try:
        with new.open("wb") as file:
            _write(file, parts, names, pack)
            file.flush()
            os.fsync(file.fileno())
            if hasattr(os, "posix_fadvise"):  # what was written piece by piece lies in small pages: read it anew
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    prune(keep=path)


def prune(*, limit: int = LIMIT, keep: Path | None = None) -> None:
    """Delete the least recently used files until ``limit`` bytes are left, and what a broken-off start left behind."""
    try:
        found = [(status.st_mtime, status.st_size, path) for path in folder().iterdir() for status in [path.stat()]]
    except OSError:
        return
    left = sum(size for _, size, path in found if path.suffix == ENDING)
    for used, size, path in sorted(found):
        stale = path.suffix == ".writing" and used < time.time() - _STALE
        if stale or (path.suffix == ENDING and left > limit and path != keep):
            try:
                path.unlink()
            except OSError:  # another start was quicker, or holds it open
                continue
            left -= 0 if stale else size


def in_huge_pages(memory: mmap.mmap) -> None:
    """Ask for pages of 2 MiB: with small ones a step, which reads all weights, takes a third longer."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)


def _key(parts: Mapping[str, str]) -> dict[str, Any]:
    formats = {name: repr(layout) for name, layout in FORMATS.items()}
    return {"version": VERSION, "formats": formats, "parts": dict(sorted(parts.items()))}


def _path(parts: Mapping[str, str]) -> Path:
    return folder() / f"{hashlib.sha256(json.dumps(_key(parts)).encode()).hexdigest()[:40]}{ENDING}"


def _write(file: BinaryIO, parts: Mapping[str, str], names: Sequence[Names], pack: Callable[[Names], Packed]) -> None:
    file.write(_MAGIC)
    entries: list[list[Any]] = []
    for name in names:
        packed = pack(name)
        file.write(bytes(-file.tell() % _ALIGNMENT))
        entries.append([name, packed.format, packed.rows, packed.columns, file.tell()])
        file.write(packed.data.numpy().data)
    footer = json.dumps({"key": _key(parts), "matrices": entries}).encode()
    file.write(footer)
    file.write(len(footer).to_bytes(8, "little") + hashlib.sha256(footer).digest())


def _entries(data: mmap.mmap, parts: Mapping[str, str]) -> dict[Names, tuple[str, int, int, int]]:
    """Where each matrix lies; ``ValueError`` unless the file is whole and of these parts."""
    end = len(data) - _END
    length = int.from_bytes(data[end : end + 8], "little") if end >= len(_MAGIC) else end
    footer = data[max(end - length, 0) : max(end, 0)]
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(footer).digest() != data[end + 8 :]:
        raise ValueError("not a whole file of packed matrices")
    said = json.loads(footer)
    if said["key"] != _key(parts):
        raise ValueError("a file of other weights")
    entries = {tuple(name): (f, rows, columns, start) for name, f, rows, columns, start in said["matrices"]}
    if any(start + packed_bytes(f, rows, columns) > end - length for f, rows, columns, start in entries.values()):
        raise ValueError("cut short")
    return entries
