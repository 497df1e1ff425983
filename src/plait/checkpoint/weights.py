"""Weights: what a checkpoint computes with, under canonical names, as numbers or as the blocks that a file holds.

The model comes first. A parameter that is in memory is read from there, whatever happened to it since it was loaded;
files are read for those on the meta device, and their blocks stand for a parameter only if they say its very numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.checkpoint.blocks import Blocks
from plait.checkpoint.dequantise import BLOCK_FORMATS
from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.scaled import ScaledSource
from plait.checkpoint.source import SPELLINGS, TensorSource, bytes_of, no_such_tensor

_SAMPLES, _SAMPLE = 4, 1024  # pieces of each stored tensor that its fingerprint sees, and their bytes


@dataclass(frozen=True)
class Weights:
    """A lazy view of a checkpoint's parameters: nothing is read until it is asked for.

    ``parameters`` are the model's own, by canonical name; ``source`` and ``bound`` (a family's binding) lead to the
    files, where there are any.
    """

    architecture: Architecture
    parameters: Mapping[str, Tensor]
    source: TensorSource | None = None
    bound: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        """Canonical names, in the order of the figure."""
        return tuple(self.parameters)

    @property
    def in_files(self) -> bool:
        """Whether all of them are read from files: the model is on the meta device."""
        return all(parameter.is_meta for parameter in self.parameters.values())

    def shape(self, name: str) -> tuple[int, ...]:
        """The parameter's shape."""
        return tuple(self._parameter(name).shape)

    def stored_type(self, name: str) -> str:
        """The type it is held in: ``"BF16"``, ``"Q4_1"``, ...; of a parameter in memory, torch's type so spelt."""
        parameter = self._parameter(name)
        if not parameter.is_meta:
            return SPELLINGS[parameter.dtype]
        source = self._source
        return source.stored_type(self.bound.stored(name))

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """The values: in the type they are held in (quantised ones in float32) unless ``dtype`` says otherwise.

        Raises ``CheckpointError`` for a name that is none, and for a model on the meta device without files.
        """
        parameter = self._parameter(name)
        if not parameter.is_meta:
            return parameter if dtype is None else parameter.to(dtype)
        source = self._source
        values = self.bound.read(name, source.read)
        if values.shape != parameter.shape:
            raise CheckpointError(
                f"{name}: the files have the shape {tuple(values.shape)} and the model {tuple(parameter.shape)}; "
                "load the weights before changing the model."
            )
        return values if dtype is None else values.to(dtype)

    def blocks(self, name: str) -> Blocks | None:
        """The stored blocks, not rounded again: rows renamed, split, joined or in another order, never their bytes.
        Those of experts ``(e, out, in)`` are rows of one matrix, an expert's after the other's.

        ``None`` where the parameter is stored otherwise, where the way from there cuts through rows, and where the
        model in memory holds other numbers: it was trained, edited, or loaded in another type than float32.
        """
        parameter = self._parameter(name)
        found = self._stored_blocks(name)
        if found is None or (found.rows, found.columns) != (prod(parameter.shape[:-1]), parameter.shape[-1]):
            return None
        if parameter.is_meta:
            return found
        same = parameter.dtype == torch.float32 and torch.equal(found.dequantised(), parameter.cpu().flatten(0, -2))
        return found if same else None

    def _stored_blocks(self, name: str) -> Blocks | None:
        source = self.source
        if source is None or self.bound is None:
            return None
        stored = self.bound.stored(name)
        kind, shape = source.stored_type(stored), source.shape(stored)
        if kind not in BLOCK_FORMATS or len(shape) < 2:
            return None
        order = self.bound.rows(name)
        if order is None:
            return None
        # By numpy: torch spreads so small a copy over its threads, and waits for them.
        rows = np.frombuffer(source.raw(stored), np.uint8).reshape(shape[0], -1)[_as_slice(order)]
        rows = rows.reshape(len(rows) * prod(shape[1:-1]), -1)
        return Blocks(kind, len(rows), shape[-1], torch.from_numpy(rows))

    def identity(self) -> str:
        """A key that changes with the weights or the architecture: of contents for those in memory, else of the files.

        For files it is sizes, times of change, and some pieces of every tensor: reading whole files would take longer
        than starting. What it misses is a change between those pieces that keeps size and time.
        """
        key = hashlib.sha256(json.dumps(self.architecture.to_dict(), sort_keys=True).encode())
        held = {name: parameter for name, parameter in self.parameters.items() if not parameter.is_meta}
        if len(held) < len(self.parameters):
            source = self._source
            for piece in fingerprint(source.stored if isinstance(source, ScaledSource) else source):
                key.update(piece)
        with ThreadPoolExecutor(max(1, torch.get_num_threads())) as threads:
            for name, digest in zip(held, threads.map(_digest, held.values()), strict=True):
                key.update(f"{name} {held[name].dtype} {tuple(held[name].shape)} ".encode() + digest)
        return key.hexdigest()

    def _parameter(self, name: str) -> Tensor:
        try:
            return self.parameters[name]
        except KeyError:
            raise no_such_tensor(name, "this model") from None

    @property
    def _source(self) -> TensorSource:
        if self.source is None:
            raise CheckpointError("this checkpoint has no weights: its model is on the meta device, with no files.")
        return self.source


def _as_slice(order: slice | Tensor) -> Any:
    """Numbers of rows that follow one another as a slice, whose rows need not be copied."""
    if isinstance(order, slice):
        return order
    numbers = order.numpy()
    start, n = int(numbers[0]) if len(numbers) else 0, len(numbers)
    return slice(start, start + n) if np.array_equal(numbers, np.arange(start, start + n)) else numbers


def fingerprint(source: TensorSource) -> Iterator[bytes]:
    """What tells one set of files from another without reading them whole."""
    whole = not source.files  # they lie in memory
    for path in source.files:
        status = path.stat()
        yield f"{status.st_size} {status.st_mtime_ns} ".encode()
    for name in sorted(source.names):
        data = source.raw(name)
        yield f"{name} {source.stored_type(name)} {source.shape(name)} ".encode()
        for i in range(0 if whole else _SAMPLES):
            start = (len(data) - _SAMPLE) * i // (_SAMPLES - 1)
            yield bytes(data[max(start, 0) : max(start, 0) + _SAMPLE])
        if whole:
            yield hashlib.sha256(data).digest()


def _digest(parameter: Tensor) -> bytes:
    return hashlib.sha256(bytes_of(parameter)).digest()
