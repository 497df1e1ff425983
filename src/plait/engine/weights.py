"""The engine's weights: every matrix packed once, in the format that was asked for or the one that it is stored in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plait.checkpoint.notice import notice
from plait.engine import program as p
from plait.engine.pages import CPU
from plait.engine.program import Operation, Program

if TYPE_CHECKING:
    from plait.checkpoint.blocks import Blocks
    from plait.checkpoint.weights import Weights
    from plait.engine.packed import Packed


def matrices(programs: Iterable[Program]) -> list[tuple[str, ...]]:
    """Every matrix that a product or a look-up reads, stacked as it is read, each once."""
    found: dict[tuple[str, ...], None] = {}
    for program in programs:
        for operation in program.operations:
            found |= dict.fromkeys(matrices_of(operation))
    return list(found)


def matrices_of(operation: Operation) -> tuple[tuple[str, ...], ...]:
    """The parameters that are packed for an operation, those of a matrix stacked; none for most."""
    match operation:
        case p.Linear():
            return (operation.weight,)
        case p.Embed():
            return ((operation.table,),)
        case p.Experts():
            names = [name for name in (operation.gate, operation.up, operation.down) if name is not None]
            return tuple((p.expert(name, number),) for name in names for number in range(operation.n_experts))
    return ()


def read_matrix(read: Callable[[str], Tensor], name: str) -> Tensor:
    """A matrix that ``matrices`` names: a parameter, or one expert's part of it."""
    parameter, number = p.whole(name)
    return read(parameter) if number is None else read(parameter)[number]


class DenseWeights:
    """Parameters as plain tensors, read when first asked for: what torch computes with. They are of one type, but for
    ``types``, which some have by name."""

    def __init__(
        self,
        read: Callable[[str, torch.dtype], Tensor],
        dtype: torch.dtype,
        device: torch.device = CPU,
        types: Mapping[str, torch.dtype] = MappingProxyType({}),
    ) -> None:
        self._read, self.dtype, self._device, self._types = read, dtype, device, types
        self._dense: dict[str, Tensor] = {}

    def dense(self, name: str) -> Tensor:
        """The parameter."""
        if name not in self._dense:
            # A copy: the model may be trained or edited on, the engine stays what it was made of.
            read = self._read(name, self._types.get(name, self.dtype))
            self._dense[name] = read.detach().to(self._device, copy=True)
        return self._dense[name]

    def read_now(self, programs: Iterable[Program]) -> None:
        """All that programs read: an engine is of the weights as they are, and a graph of addresses that stay."""
        for program in programs:
            for operation in program.operations:
                for name in operation.weights:
                    self.dense(name)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(tensor.nbytes for tensor in self._dense.values())


class PackedWeights(DenseWeights):
    """Matrices in packed formats for the kernels; what is no matrix, and what torch still computes, in float32."""

    def __init__(self, read: Callable[[str, torch.dtype], Tensor], packed: Mapping[tuple[str, ...], Packed]) -> None:
        super().__init__(read, torch.float32)
        self.packed = packed

    def matrix(self, names: tuple[str, ...]) -> Packed:
        """The matrix of these parameters, one below the other."""
        return self.packed[names]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return super().nbytes + sum(packed.nbytes for packed in self.packed.values())


class Formats:
    """Which packed format each matrix takes: ``dtype`` as ``optimize`` takes it; ``blocks``, by name, are what matrices
    are rounded to (``block_types``).

    Without ``weights`` what is stored counts as float32, and nothing can be packed.
    """

    def __init__(self, weights: Weights | None, dtype: str, blocks: Mapping[str, str] | None) -> None:
        self._stored, self._dtype, self._blocks = weights, dtype, blocks or {}
        self._read = lru_cache(maxsize=1)(self._read_whole)  # experts' matrices are asked for one by one
        self._in_blocks = lru_cache(maxsize=1)(self._blocks_whole)

    @property
    def rounded(self) -> tuple[str, ...]:
        """What is rounded to blocks that it is not stored in."""
        return tuple(self._blocks)

    @property
    def _weights(self) -> Weights:
        assert self._stored is not None
        return self._stored

    def __call__(self, name: str) -> str:
        """The format of one matrix; those of one format may be stacked."""
        from plait.engine.packed import BLOCKS

        name = p.whole(name)[0]
        if name in self._blocks:
            return BLOCKS[self._blocks[name]][0]
        if self._dtype != "stored" or self._stored is None:
            return "BF16" if self._dtype == "bfloat16" else "F32"
        kind = self._weights.stored_type(name)
        return BLOCKS[kind][0] if kind in BLOCKS else "BF16" if kind == "BF16" else "F32"

    def pack(self, names: tuple[str, ...]) -> Packed:
        """The matrices, one below the other, in their format. Blocks of a file are not rounded again."""
        from plait.engine.packed import pack, pack_blocks

        found = [self._rounded(name) for name in names]
        blocks = [b for b in found if b is not None]
        if len(blocks) == len(names) and len({b.type for b in blocks}) == 1:
            return pack_blocks(_joined(blocks))
        format = self(names[0])
        if format not in ("F32", "BF16"):
            kind = self._weights.stored_type(p.whole(names[0])[0])
            notice(f"{names[0]}: its {kind} blocks cannot be taken; float32 is used.")
            format = "F32"
        dtype = torch.float32 if format == "F32" else torch.bfloat16
        values = [read_matrix(lambda parameter: self._read(parameter, dtype), name) for name in names]
        return pack(values[0] if len(values) == 1 else torch.cat(values), format)

    def _rounded(self, name: str) -> Blocks | None:
        """The matrix in blocks, as they are stored or as they are asked for."""
        from plait.checkpoint.rounding import round_to_blocks

        parameter, number = p.whole(name)
        if parameter in self._blocks:
            read = read_matrix(lambda parameter: self._read(parameter, torch.float32), name)
            return round_to_blocks(read, self._blocks[parameter])
        found = self._in_blocks(parameter) if self._dtype == "stored" else None
        if found is None or number is None:
            return found
        rows = self._weights.shape(parameter)[1]
        return dataclasses.replace(found, rows=rows, data=found.data[number * rows : (number + 1) * rows])

    def _read_whole(self, parameter: str, dtype: torch.dtype) -> Tensor:
        return self._weights.read(parameter, dtype)

    def _blocks_whole(self, parameter: str) -> Blocks | None:
        return self._weights.blocks(parameter)


def _joined(parts: list[Blocks]) -> Blocks:
    if len(parts) == 1:
        return parts[0]
    data = torch.cat([part.data for part in parts])
    return dataclasses.replace(parts[0], rows=len(data), data=data)
