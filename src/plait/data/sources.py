"""Sources: the files that a data set is made of, found by name, opened whatever packs them, and known by their content.

A folder stands for the files below it, in the order of their names, that end in one of ``ENDINGS``; a file that is
named itself and ends otherwise is plain text. ``hf:NAME``, ``hf:NAME:CONFIG`` and ``hf:NAME@SPLIT`` are data sets of
the Hugging Face hub, streamed (``pip install plait[datasets]``); the split is ``train`` where none is said.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from plait.data.error import DataError

ENDINGS = (".txt", ".jsonl", ".parquet", ".txt.gz", ".jsonl.gz", ".txt.zst", ".jsonl.zst")
HUB = "hf:"
_CHUNK = 1 << 20
_GLIMPSE = 1 << 26  # bytes up to which a file is read whole to know it again


@dataclass(frozen=True)
class Source:
    """One file, or one data set of the hub. ``kind``: text, jsonl, parquet or hub."""

    name: str
    kind: str

    @property
    def path(self) -> Path:
        """Where the file is."""
        return Path(self.name)

    @property
    def size(self) -> int:
        """Bytes on the disk, packed as they are; 0 for a data set of the hub."""
        return 0 if self.kind == "hub" else self.path.stat().st_size


def find(names: str | Path | Iterable[str | Path]) -> tuple[list[Source], int]:
    """The sources that names stand for, in order, and how many files in folders are left out for their ending.

    Raises DataError for a name that nothing has, a folder without a text, and a file that stands twice.
    """
    found: list[Source] = []
    others = 0
    for name in [names] if isinstance(names, str | Path) else names:
        path = Path(name)
        if str(name).startswith(HUB):
            found.append(Source(str(name), "hub"))
        elif path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file() and not _hidden(file.relative_to(path)))
            texts = [file for file in files if file.name.endswith(ENDINGS)]
            if not texts:
                raise DataError(f"{path}: no file in this folder ends in {', '.join(ENDINGS)}.")
            others += len(files) - len(texts)
            found += [Source(str(file), _kind(file)) for file in texts]
        elif path.is_file():
            found.append(Source(str(path), _kind(path)))
        else:
            raise DataError(f"{path}: there is no such file or folder; a data set of the hub is written {HUB}{name}.")
    for index, source in enumerate(found):
        if source in found[:index]:
            raise DataError(f"{source.name}: it stands twice; keep one.")
    if not found:
        raise DataError("data: no file is named; give a file, a folder, or a list of them.")
    return found, others


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _kind(path: Path) -> str:
    ending = path.name.removesuffix(".gz").removesuffix(".zst").rpartition(".")[2]
    if ending == "json":
        raise DataError(f"{path}: one JSON value is not read; write one to a line, and name the file .jsonl.")
    return ending if ending in ("jsonl", "parquet") else "text"


def identity(source: Source, read: Callable[[int], object] = lambda n: None) -> list[str]:
    """What a source holds, in a few words: the digest of a file, the hub's own of a data set. ``read`` is told of every
    so many bytes."""
    if source.kind == "hub":
        builder, split = _builder(source.name)
        return ["hub", source.name, split, str(builder.config_id), str(builder.hash)]
    digest = hashlib.blake2b(digest_size=20)
    with source.path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            read(len(chunk))
    packing = source.path.suffix if source.path.suffix in (".gz", ".zst") else ""
    return [source.kind + packing, digest.hexdigest()]


def glimpse(source: Source) -> list[str]:
    """What a source holds, as ``identity``; of a large file its size, its beginning and its end alone."""
    if source.kind == "hub" or source.size <= _GLIMPSE:
        return identity(source)
    digest = hashlib.blake2b(digest_size=20)
    with source.path.open("rb") as file:
        digest.update(file.read(_CHUNK))
        file.seek(-_CHUNK, os.SEEK_END)
        digest.update(file.read(_CHUNK))
    return [source.kind, str(source.size), digest.hexdigest()]


@contextmanager
def opened(source: Source) -> Iterator[BinaryIO]:
    """A file's bytes, unpacked; DataError where what packs them is broken or cut short."""
    with source.path.open("rb") as file:
        unpack = {".gz": _gunzip, ".zst": _unzstd}.get(source.path.suffix)
        try:
            yield file if unpack is None else unpack(file, source.name)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{source.name}: this is no whole gzip file ({error}); fetch or pack it anew.") from None


def _gunzip(file: BinaryIO, name: str) -> BinaryIO:
    return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]


def _unzstd(file: BinaryIO, name: str) -> BinaryIO:
    return io.BufferedReader(_Zstandard(file, name), _CHUNK)


class _Zstandard(io.RawIOBase):
    """The frames of a .zst file one after the other; the library's own reader takes a cut one for a whole one."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._library: Any = extra("zstandard", "zst", name)
        self._file, self._name = file, name
        self._frame: Any = None
        self._packed = self._plain = b""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with what comes next; 0 at the end."""
        while not self._plain:
            packed = self._packed or self._file.read(1 << 16)  # little: what it unpacks to comes at once
            if not packed:
                if self._frame is not None:
                    raise DataError(f"{self._name}: this zstd file is cut short; fetch or pack it anew.")
                return 0
            self._frame = self._frame or self._library.ZstdDecompressor().decompressobj()
            try:
                self._plain = self._frame.decompress(packed)
            except self._library.ZstdError as error:
                raise DataError(f"{self._name}: this is no zstd file ({error}); fetch or pack it anew.") from None
            self._packed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        n = min(len(buffer), len(self._plain))
        buffer[:n], self._plain = self._plain[:n], self._plain[n:]
        return n


# Rows of tables


def parquet_rows(source: Source, field: str) -> Iterator[Any]:
    """The values of a column of a .parquet file, some hundred in memory at a time."""
    parquet: Any = extra("pyarrow.parquet", "parquet", source.name)
    try:
        file = parquet.ParquetFile(source.name)
    except Exception as error:
        raise DataError(f"{source.name}: this is no parquet file ({error}).") from None
    with file:
        names = file.schema_arrow.names
        if field not in names:
            raise DataError(f"{source.name}: it has no column {field!r}; its columns are {', '.join(names)}.")
        for batch in file.iter_batches(batch_size=256, columns=[field]):
            yield from batch.column(0).to_pylist()


def hub_rows(source: Source, field: str) -> Iterator[Any]:
    """The values of a field of a data set of the hub, as they come over the wire."""
    builder, split = _builder(source.name)
    for row in builder.as_streaming_dataset(split=split):
        if field not in row:
            raise DataError(f"{source.name}: its rows have no field {field!r}; they have {', '.join(row)}.")
        yield row[field]


def _builder(name: str) -> tuple[Any, str]:
    datasets: Any = extra("datasets", "datasets", name)
    what, _, split = name.removeprefix(HUB).partition("@")
    place, _, config = what.partition(":")
    try:
        return datasets.load_dataset_builder(place, config or None), split or "train"
    except Exception as error:  # many kinds, of several libraries
        raise DataError(f"{name}: the hub's data set cannot be opened: {error}") from None


def extra(module: str, package: str, name: str) -> Any:
    """A library that plait does without until a file asks for it; DataError says how to install it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(
            f"{name}: reading it takes the library {module.partition('.')[0]}; pip install 'plait[{package}]'."
        ) from None
