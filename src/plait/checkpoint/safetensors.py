"""Safetensors files, one or several shards, as one ``TensorSource``: mapped, not copied.

A matrix may be stored in GGUF's blocks: a tensor of type U8 and shape (rows, bytes per row), every row whole blocks one
after the other, whose type the metadata names: ``plait.blocks`` is a JSON object, stored name -> ``"Q4_0"``. Those of
all experts are one tensor (experts, rows, bytes per row).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plait.checkpoint.dequantise import BLOCK_FORMATS, dequantise
from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.source import PLAIN_TYPES, bytes_of, no_such_tensor, refuse_pointer

BLOCKS = "plait.blocks"


class SafetensorsSource:
    """Tensors in ``paths``. With ``places`` (stored name -> path, an index's), exactly the names it lists.

    A name that a file's metadata declares an alias (``{"lm_head.weight": "model.embed_tokens.weight"}``, as
    ``safetensors.torch.save_model`` writes for shared tensors) is readable under both names; ``aliases`` lists these.
    Names under ``plait.blocks`` have the type, shape and values of the matrix in those bytes.
    Raises ``CheckpointError`` for files shorter or longer than their headers say, before anything is mapped.
    """

    def __init__(self, paths: Iterable[Path], places: Mapping[str, Path] | None = None) -> None:
        """Check every header against its file's size, then map the files."""
        self._headers = {path: _checked_header(path) for path in paths}
        self.metadata: Mapping[str, Any] = {
            key: value for header in self._headers.values() for key, value in header.get("__metadata__", {}).items()
        }
        self._places = dict(places) if places is not None else self._found()
        for name, path in self._places.items():
            if name not in self._headers[path]:
                raise CheckpointError(f"{path}: the index places {name!r} in this file, which does not hold it.")
        self.aliases = {
            alias: name
            for alias, name in self.metadata.items()
            if alias not in self._places and isinstance(name, str) and name in self._places
        }
        self.blocks = _checked_blocks(self.metadata.get(BLOCKS, "{}"), self._entry, self._places)
        self._mapped = {path: _map(path) for path in self._headers}

    def _found(self) -> dict[str, Path]:
        places: dict[str, Path] = {}
        for path, header in self._headers.items():
            for name in header:
                if name in places:
                    raise CheckpointError(f"{path}: the tensor {name!r} is also in {places[name].name}; keep one.")
                if name != "__metadata__":
                    places[name] = path
        return places

    @property
    def names(self) -> tuple[str, ...]:
        """Stored names, then declared aliases."""
        return (*self._places, *self.aliases)

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, or the shards."""
        return tuple(self._headers)

    def shape(self, name: str) -> tuple[int, ...]:
        """The stored shape; of blocks, that of the matrix."""
        shape = tuple(self._entry(name)["shape"])
        block = BLOCK_FORMATS.get(self.stored_type(name))
        return shape if block is None else (*shape[:-1], shape[-1] // block.bytes * block.weights)

    def stored_type(self, name: str) -> str:
        """The type as safetensors spells it: ``"F32"``, ``"BF16"``, ...; of blocks, GGUF's name: ``"Q4_0"``."""
        return self.blocks.get(self.aliases.get(name, name)) or self._entry(name)["dtype"]

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """The mapped tensor, blocks as float32; a copy otherwise only where ``dtype`` differs from the stored one."""
        kind, values = self.stored_type(name), self._mapped_tensor(name)
        if kind in BLOCK_FORMATS:
            values = dequantise(values.view(-1, BLOCK_FORMATS[kind].bytes), kind).view(self.shape(name))
        return values if dtype is None else values.to(dtype)

    def raw(self, name: str) -> memoryview:
        """The stored bytes."""
        return bytes_of(self._mapped_tensor(name))

    def _mapped_tensor(self, name: str) -> Tensor:
        kind = self._entry(name)["dtype"]
        if kind not in PLAIN_TYPES:
            known = ", ".join(PLAIN_TYPES)
            raise CheckpointError(
                f"{self._place(name)}: plait does not read {kind}, the type of the tensor {name!r} (it reads {known})."
            )
        return self._mapped[self._place(name)].get_tensor(self.aliases.get(name, name))

    def _place(self, name: str) -> Path:
        try:
            return self._places[self.aliases.get(name, name)]
        except KeyError:
            raise no_such_tensor(name, ", ".join(str(path) for path in self._headers)) from None

    def _entry(self, name: str) -> dict[str, Any]:
        return self._headers[self._place(name)][self.aliases.get(name, name)]


def _checked_blocks(text: Any, entry: Callable[[str], Mapping[str, Any]], places: Mapping[str, Path]) -> dict[str, str]:
    """Which tensors are blocks, and of what type, as the metadata says it."""
    try:
        kinds: dict[str, str] = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        raise CheckpointError(f"{BLOCKS}: this metadata is {text!r}, not a JSON object of names and types.") from None
    for name, kind in kinds.items():
        if name not in places:
            raise CheckpointError(f"{BLOCKS}: it names the tensor {name!r}, which is not stored.")
        if kind not in BLOCK_FORMATS:
            known = ", ".join(BLOCK_FORMATS)
            raise CheckpointError(f"{places[name]}: {name!r} is in blocks of {kind!r}; plait reads {known}.")
        shape, size = entry(name)["shape"], BLOCK_FORMATS[kind].bytes
        if entry(name)["dtype"] != "U8" or len(shape) < 2 or shape[-1] % size:
            raise CheckpointError(
                f"{places[name]}: {name!r}, {entry(name)['dtype']} of shape {shape}, are no rows of {kind} blocks, "
                f"U8 of {size} bytes each."
            )
    return kinds


def _map(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(str(path), framework="pt")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({error}).") from None


def _checked_header(path: Path) -> dict[str, Any]:
    """The JSON header: 8 bytes of length, then that many bytes; it must account for the whole file.

    ``safetensors`` refuses the same faults, but does not say the two sizes.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(256)
        refuse_pointer(path, head, size)
        if size < 8:
            raise CheckpointError(f"{path}: it has {size} bytes; a safetensors file starts with 8 bytes of length.")
        length = int.from_bytes(head[:8], "little")
        if length > size - 8:
            raise CheckpointError(
                f"{path}: its header should take {length} bytes, but the file has {size}; it is cut short, or "
                "something else."
            )
        file.seek(8)
        text = file.read(length)
    try:
        header = json.loads(text)
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        ends = [entry["data_offsets"][1] for entry in entries.values()]
        bad = next((name for name, entry in entries.items() if not _consistent(entry)), None)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise CheckpointError(f"{path}: its header of {length} bytes is not a safetensors header.") from None
    if bad is not None:
        entry = entries[bad]
        raise CheckpointError(
            f"{path}: the tensor {bad!r} of shape {entry['shape']} and type {entry['dtype']} does not fit its bytes "
            f"{entry['data_offsets'][0]} to {entry['data_offsets'][1]}."
        )
    promised = 8 + length + max(ends, default=0)
    if promised != size:
        raise CheckpointError(f"{path}: its header promises {promised} bytes, the file has {size}; fetch it again.")
    return header


def _consistent(entry: Mapping[str, Any]) -> bool:
    start, end = entry["data_offsets"]
    kind = PLAIN_TYPES.get(entry["dtype"])
    return kind is None or end - start == math.prod(entry["shape"]) * kind.itemsize
