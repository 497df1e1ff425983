"""A source of tensors: names, shapes, stored types, and values that are read when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from plait.checkpoint.notice import CheckpointError

# Stored types that are plain numbers, by the one spelling that safetensors and GGUF share.
PLAIN_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
}
FLOATS = frozenset(name for name, dtype in PLAIN_TYPES.items() if dtype.is_floating_point and dtype.itemsize > 1)
SPELLINGS = {dtype: name for name, dtype in PLAIN_TYPES.items()}


@runtime_checkable
class TensorSource(Protocol):
    """Named tensors in files. Nothing is read until it is asked for; values are mapped where the file allows it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The stored names."""
        ...

    @property
    def files(self) -> tuple[Path, ...]:
        """The files they are in."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the files say beside the tensors."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape, slowest dimension first."""
        ...

    def stored_type(self, name: str) -> str:
        """The type on disk: ``"F32"``, ``"BF16"``, ``"Q4_1"``, ..."""
        ...

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """The values; in the stored type (quantised ones in float32) unless ``dtype`` says otherwise."""
        ...

    def raw(self, name: str) -> memoryview:
        """The stored bytes, untouched."""
        ...


def bytes_of(tensor: Tensor) -> memoryview:
    """A tensor's own bytes, without a copy where it is contiguous and on the CPU."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def no_such_tensor(name: str, place: object) -> CheckpointError:
    """The error for a name that is not stored."""
    return CheckpointError(f"{place}: there is no tensor {name!r}.")


def refuse_pointer(path: object, head: bytes, size: int) -> None:
    """A Git LFS pointer is a note of some 130 bytes that stands for the file; say so instead of 'corrupt'."""
    if not head.startswith(b"version https://git-lfs"):
        return
    words = head.split()
    promised = words[words.index(b"size") + 1].decode() if b"size" in words[:-1] else "an unknown number of"
    raise CheckpointError(
        f"{path}: these {size} bytes are a Git LFS pointer to a file of {promised} bytes; fetch it with `git lfs pull`."
    )
