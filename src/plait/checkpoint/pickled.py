"""PyTorch ``.bin`` files: read only when asked for by name, and then without running what is pickled in them."""

from __future__ import annotations

import pickle as pickle_format
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.source import SPELLINGS, bytes_of, no_such_tensor, refuse_pointer


def refuse_pickle(path: Path) -> CheckpointError:
    """The error for a pickle that nobody asked to open."""
    return CheckpointError(
        f"{path}: the weights are a pickle, which can run code when it is read; if you trust where it comes from, load "
        "with pickle=True (tensors alone are then read), or convert it to safetensors first."
    )


class PickleSource:
    """Tensors in ``.bin`` files, through torch's unpickler that knows tensors and nothing else (``weights_only``)."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read the files; raises ``CheckpointError`` where one holds anything but tensors."""
        self.metadata: Mapping[str, Any] = {}
        self._paths = tuple(paths)
        self._tensors: dict[str, Tensor] = {}
        for path in self._paths:
            self._tensors.update(_read_tensors(path))

    @property
    def names(self) -> tuple[str, ...]:
        """The stored names."""
        return tuple(self._tensors)

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, or its parts."""
        return self._paths

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape."""
        return tuple(self._find(name).shape)

    def stored_type(self, name: str) -> str:
        """The type, as safetensors spells it."""
        dtype = self._find(name).dtype
        return SPELLINGS.get(dtype, str(dtype))

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """The tensor, converted where ``dtype`` differs."""
        values = self._find(name)
        return values if dtype is None else values.to(dtype)

    def raw(self, name: str) -> memoryview:
        """The tensor's bytes."""
        return bytes_of(self._find(name))

    def _find(self, name: str) -> Tensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise no_such_tensor(name, ", ".join(map(str, self._paths))) from None


def _read_tensors(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file:
        head = file.read(256)
    refuse_pointer(path, head, path.stat().st_size)
    is_zip = head.startswith(b"PK")  # only these can be mapped; older ones are read
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except (pickle_format.UnpicklingError, RuntimeError, EOFError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path}: not a file of tensors alone, so it is not read ({reason}).") from None
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise CheckpointError(f"{path}: it holds something else than named tensors.")
    return found
