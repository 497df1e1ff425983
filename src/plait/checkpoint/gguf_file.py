"""Writing a GGUF file: its header first, then tensor after tensor, each made when its turn comes.

The format is ggml's (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), version 3; ``gguf.py`` reads it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from plait.checkpoint.dequantise import BLOCK_FORMATS
from plait.checkpoint.gguf import NUMBERS
from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.source import PLAIN_TYPES

ALIGNMENT = 32
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _UINT64, _INT64 = 4, 5, 6, 7, 8, 9, 10, 11
_CODES = {_UINT32: "I", _INT32: "i", _FLOAT32: "f", _BOOL: "?", _UINT64: "Q", _INT64: "q"}


@dataclass(frozen=True)
class Planned:
    """A tensor to write: its shape (slowest dimension first), ggml's type, and what gives its bytes."""

    name: str
    shape: tuple[int, ...]
    type: str
    data: Callable[[], memoryview]

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        if self.type in BLOCK_FORMATS:
            return math.prod(self.shape) // BLOCK_FORMATS[self.type].weights * BLOCK_FORMATS[self.type].bytes
        return math.prod(self.shape) * PLAIN_TYPES[self.type].itemsize


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Sequence[Planned]) -> None:
    """Write the file. Whole numbers in metadata become the narrowest of uint32, uint64 and int64, floats float32."""
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
        for key, value in metadata.items():
            file.write(_text(key, key) + _entry(value, key))
        offset = 0
        for tensor in tensors:
            shape = tensor.shape[::-1]
            dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
            file.write(_text(tensor.name, tensor.name) + dimensions + struct.pack("<IQ", NUMBERS[tensor.type], offset))
            offset += tensor.size + -tensor.size % ALIGNMENT
        _pad(file)
        for tensor in tensors:
            data = tensor.data()
            if data.nbytes != tensor.size:
                raise CheckpointError(
                    f"{tensor.name}: {data.nbytes} bytes were made for it, and {tensor.size} are due."
                )
            file.write(data)
            _pad(file)


def _pad(file: BinaryIO) -> None:
    file.write(b"\0" * (-file.tell() % ALIGNMENT))


def _text(value: str, key: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        half = value[error.start]
        raise CheckpointError(
            f"{key!a}: it holds {half!a}, half of a surrogate pair; GGUF takes whole characters."
        ) from None
    return struct.pack("<Q", len(data)) + data


def _entry(value: Any, key: str) -> bytes:
    """A value behind the number of its kind."""
    if isinstance(value, list):
        kind = _kind_of_all(value, key)
        items = (
            b"".join(_text(item, key) for item in value)
            if kind == _STRING
            else struct.pack(f"<{len(value)}{_CODES[kind]}", *value)
        )
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + items
    kind = _kind(value, key)
    return struct.pack("<I", kind) + (_text(value, key) if kind == _STRING else struct.pack(f"<{_CODES[kind]}", value))


def _kind(value: Any, key: str) -> int:
    match value:
        case bool():
            return _BOOL
        case str():
            return _STRING
        case float():
            return _FLOAT32
        case int():
            return _INT64 if value < 0 else _UINT32 if value < 2**32 else _UINT64
        case _:
            raise CheckpointError(f"{key}: GGUF has no metadata of the kind {type(value).__name__}.")


def _kind_of_all(values: list[Any], key: str) -> int:
    """One kind for a list; whole numbers are int32, as llama.cpp wants the types of tokens."""
    kinds = {_kind(value, key) for value in values} or {_STRING}
    if kinds <= {_UINT32, _INT64} and all(-(2**31) <= value < 2**31 for value in values):
        return _INT32
    if len(kinds) > 1:
        raise CheckpointError(f"{key}: a list in GGUF holds values of one kind.")
    return kinds.pop()
