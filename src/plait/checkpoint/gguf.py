"""GGUF files: our own reader of the header, and tensors read through a mapping of the file.

The format is ggml's (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3. Every length that
the file states is compared with the file's size before it is used. The ``gguf`` library's reader keeps an array object
for each of some 100,000 vocabulary strings, and takes seconds; this one takes a tenth of one.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plait.checkpoint.dequantise import BLOCK_FORMATS, dequantise
from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.source import PLAIN_TYPES, no_such_tensor, refuse_pointer

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_U64 = struct.Struct("<Q")
_SMALLEST_ENTRY, _SMALLEST_TENSOR = 13, 32  # bytes that one metadata entry, one tensor description take at least

# ggml's numbers for tensor types: those read here, and those only named when they are refused
_TENSOR_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
NUMBERS = {name: number for number, name in _TENSOR_TYPES.items()}


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies: its shape (slowest dimension first), type, first byte and number of bytes."""

    shape: tuple[int, ...]
    type: str
    start: int
    size: int


class GGUFSource:
    """A ``.gguf`` file as a ``TensorSource``. ``metadata`` is the header's: strings, numbers, lists of them.

    Raises ``CheckpointError`` for what is no whole GGUF file, and for tensor types it does not know.
    """

    def __init__(self, path: str | Path) -> None:
        """Map the file and read its header; no tensor is touched."""
        self.path = Path(path)
        header = _Header(self.path)
        self.metadata: Mapping[str, Any] = header.metadata
        self._tensors = header.tensors
        # A private mapping: writable for torch, and what is written never reaches the file.
        self._bytes = torch.frombuffer(header.data, dtype=torch.uint8)

    @property
    def names(self) -> tuple[str, ...]:
        """The stored names, as llama.cpp writes them."""
        return tuple(self._tensors)

    @property
    def files(self) -> tuple[Path, ...]:
        """The one file."""
        return (self.path,)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape, slowest dimension first (GGUF itself writes it the other way round)."""
        return self._find(name).shape

    def stored_type(self, name: str) -> str:
        """ggml's name of the type: ``"F32"``, ``"Q4_1"``, ..."""
        return self._find(name).type

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """Plain numbers mapped as stored, quantised blocks as float32; converted where ``dtype`` differs."""
        stored = self._find(name)
        span = self._bytes[stored.start : stored.start + stored.size]
        if stored.type in BLOCK_FORMATS:
            values = dequantise(span.view(-1, BLOCK_FORMATS[stored.type].bytes), stored.type)
        else:
            values = span.view(PLAIN_TYPES[stored.type])
        values = values.view(stored.shape)
        return values if dtype is None else values.to(dtype)

    def raw(self, name: str) -> memoryview:
        """The stored blocks, untouched."""
        stored = self._find(name)
        return self._bytes[stored.start : stored.start + stored.size].numpy().data

    def _find(self, name: str) -> StoredTensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise no_such_tensor(name, self.path) from None


class _Header:
    """One pass over a GGUF header: ``metadata`` and ``tensors``, with every length checked on the way."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        self.size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(256)
            refuse_pointer(path, head, self.size)
            if head[:4] != b"GGUF":
                raise self._wrong(f"it starts with {head[:4]!r}, a GGUF file with b'GGUF'")
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.at = 4
        self._check_version()
        n_tensors, n_entries = self._length(), self._length()
        self._fits(n_entries, _SMALLEST_ENTRY, "metadata entries")
        self._fits(n_tensors, _SMALLEST_TENSOR, "tensors")
        self.metadata = self._entries(n_entries)
        parts = self.metadata.get("split.count", 0)
        if not isinstance(parts, int):
            raise self._wrong(f"split.count is {parts!r}; it must be a whole number")
        if parts > 1:
            raise self._wrong(f"it is one of {parts} parts; join them with llama.cpp's `llama-gguf-split --merge`")
        described = [self._describe() for _ in range(n_tensors)]
        start = self.at + -self.at % self._alignment()
        self.tensors = {name: self._place(name, start + offset, shape, kind) for name, shape, kind, offset in described}
        if len(self.tensors) != n_tensors:
            raise self._wrong(f"it describes {n_tensors} tensors under {len(self.tensors)} names")

    def _wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}.")

    def _check_version(self) -> None:
        version = self._scalar("<I")
        if version in (2, 3):
            return
        if version in (0x02000000, 0x03000000):
            raise self._wrong("it is written for big-endian machines; only little-endian GGUF files are read")
        raise self._wrong(f"it is of GGUF version {version}; versions 2 and 3 are read")

    def _need(self, count: int, what: str) -> None:
        if count > self.size - self.at:
            raise self._wrong(
                f"it is cut short: {what} at byte {self.at} takes {count} bytes, and {self.size - self.at} of "
                f"the file's {self.size} are left"
            )

    def _fits(self, count: int, least: int, what: str) -> None:
        if count * least > self.size - self.at:
            raise self._wrong(f"its header claims {count} {what}, but the file has only {self.size} bytes")

    def _scalar(self, code: str) -> Any:
        size = struct.calcsize(code)
        self._need(size, "a number")
        value = struct.unpack_from(code, self.data, self.at)[0]
        self.at += size
        return value

    def _length(self) -> int:
        return self._scalar("<Q")

    def _text(self) -> str:
        size = self._length()
        self._need(size, "a string")
        self.at += size
        return self._decode(self.data[self.at - size : self.at])

    def _decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self._wrong(f"the string {data[:40]!r} before byte {self.at} is not UTF-8") from None

    def _entries(self, count: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for _ in range(count):
            key = self._text()
            if key in entries:
                raise self._wrong(f"the metadata key {key!r} stands twice")
            entries[key] = self._value(self._scalar("<I"), key)
        return entries

    def _value(self, kind: int, key: str, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY and depth < 4:
            return self._array(key, depth)
        raise self._wrong(f"the metadata key {key!r} has type {kind}, which GGUF does not define")

    def _array(self, key: str, depth: int) -> list[Any]:
        kind, count = self._scalar("<I"), self._length()
        if kind in _SCALARS:
            code = _SCALARS[kind]
            size = count * struct.calcsize(code)
            self._need(size, f"the list {key!r}")
            values = struct.unpack_from(f"<{count}{code[1]}", self.data, self.at)
            self.at += size
            return list(values)
        self._fits(count, 8, f"strings or lists in {key!r}")
        if kind == _STRING:
            return self._strings(count, key)
        return [self._value(kind, key, depth + 1) for _ in range(count)]

    def _strings(self, count: int, key: str) -> list[str]:
        """A vocabulary: the one hot loop of the header, hence without a call for each string."""
        data, at, end, read = self.data, self.at, self.size, _U64.unpack_from
        values: list[str] = []
        try:
            for _ in range(count):
                start = at + 8
                at = start + read(data, at)[0]
                if at > end:
                    self.at = start
                    self._need(at - start, f"a string of {key!r}")
                values.append(data[start:at].decode())
        except UnicodeDecodeError:
            self.at = at
            raise self._wrong(f"a string of {key!r} before byte {at} is not UTF-8") from None
        except struct.error:
            self.at = at
            self._need(8, f"a string of {key!r}")
            raise
        self.at = at
        return values

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._wrong(f"general.alignment is {alignment!r}; it must be a power of two")
        return alignment

    def _describe(self) -> tuple[str, tuple[int, ...], int, int]:
        name, n_dims = self._text(), self._scalar("<I")
        if n_dims > 4:
            raise self._wrong(f"the tensor {name!r} has {n_dims} dimensions; GGUF allows 4")
        shape = tuple(self._length() for _ in range(n_dims))[::-1]
        return name, shape, self._scalar("<I"), self._length()

    def _place(self, name: str, start: int, shape: tuple[int, ...], number: int) -> StoredTensor:
        kind = _TENSOR_TYPES.get(number, f"number {number}")
        count = math.prod(shape)
        if kind in BLOCK_FORMATS:
            block = BLOCK_FORMATS[kind]
            if not shape or shape[-1] % block.weights:
                raise self._wrong(
                    f"the rows of {name!r}, {shape}, are not whole {kind} blocks of {block.weights} weights"
                )
            size = count // block.weights * block.bytes
        elif kind in PLAIN_TYPES:
            size = count * PLAIN_TYPES[kind].itemsize
        else:
            known = ", ".join([*(t for t in _TENSOR_TYPES.values() if t in PLAIN_TYPES), *BLOCK_FORMATS])
            raise self._wrong(f"plait does not read {kind}, the type of the tensor {name!r} (it reads {known})")
        if start + size > self.size:
            raise self._wrong(
                f"it is cut short: the tensor {name!r} ends at byte {start + size}, the file has {self.size} bytes"
            )
        if kind in PLAIN_TYPES and start % PLAIN_TYPES[kind].itemsize:
            raise self._wrong(
                f"the tensor {name!r} starts at byte {start}, which is no multiple of its {kind} numbers' size"
            )
        return StoredTensor(shape, kind, start, size)
