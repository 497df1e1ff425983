"""Quantise: a checkpoint whose matrices are in blocks of 4 or 8 bits, and what each of them lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.checkpoint.blocks import Blocks
from plait.checkpoint.compensation import compensate, output_error, slab_width
from plait.checkpoint.loading import as_device, build
from plait.checkpoint.native import NATIVE, NativeBinding
from plait.checkpoint.notice import CheckpointError, notice
from plait.checkpoint.record import Checkpoint
from plait.checkpoint.rounding import GROUP, relative_error, round_to_blocks
from plait.checkpoint.source import SPELLINGS, bytes_of, no_such_tensor
from plait.families.binding import few
from plait.parameters import parameters
from plait.words import nearest

QUANTIZATIONS = {"int8": "Q8_0", "int4": "Q4_0", "int4_min": "Q4_1"}

# The last word but one of a name. The vocabulary's rows are looked up and scored one by one: they take 8 bits.
_IN_LAYERS = {"query", "key", "value", "output", "gate", "up", "down", "dense", "projection"}
_VOCABULARY = {"embedding.tokens.weight", "source_embedding.tokens.weight", "head.output.weight"}


@dataclass(frozen=True)
class Rounded:
    """What became of a matrix: ``error`` is ``sqrt(sum (w - w')^2 / sum w^2)``, ``outputs`` the same of its outputs,
    ``sqrt(E |(w - w') x|^2 / E |w x|^2)``, over the inputs of the calibration."""

    name: str
    type: str
    shape: tuple[int, int]
    bits: float  # a weight, scales included
    error: float
    outputs: float | None = None


def block_types(architecture: Architecture, quantization: str) -> dict[str, str]:
    """The matrices that ``quantization`` rounds, and the blocks they get; all else stays in floats.

    Every matrix that multiplies, and the tables of the vocabulary, those in Q8_0 whatever the layers are in. Norms,
    biases, tables of positions, types and relative distances stay, and matrices whose columns are no multiple of 32.
    """
    if quantization not in QUANTIZATIONS:
        near = nearest(quantization, QUANTIZATIONS, cutoff=0.8)  # int3 is as near to int4 as to int8
        hint = f" Did you mean {near!r}?" if near else ""
        raise CheckpointError(f"quantization: {quantization!r} is not one of {', '.join(QUANTIZATIONS)}.{hint}")
    found = {name: shape for name, shape in parameters(architecture).items() if _multiplies(name, shape)}
    return {
        name: "Q8_0" if name in _VOCABULARY else QUANTIZATIONS[quantization]
        for name, shape in found.items()
        if shape[-1] % GROUP == 0
    }


def quantise(
    checkpoint: Checkpoint,
    quantization: str,
    *,
    moments: Mapping[str, Tensor] | None = None,
    device: str | torch.device = "cpu",
) -> tuple[Checkpoint, list[Rounded]]:
    """Round the matrices of a checkpoint: ``"int8"`` (Q8_0), ``"int4"`` (Q4_0) or ``"int4_min"`` (Q4_1).

    The checkpoint given back computes with the rounded weights, in float32, and ``save`` writes their blocks in the
    native dialect; its model goes to ``device``, ``"meta"`` where it is only to be saved or optimised. ``moments`` are
    ``calibrate``'s: matrices in layers then make up for their own errors on that text, and the vocabulary's rows take
    more care with inputs that are large there. ``checkpoint`` itself may be on the meta device, its weights then read
    one by one.

    Raises ``CheckpointError`` for weights that are in blocks already, and for moments of something else.
    """
    weights, kinds = checkpoint.weights(), block_types(checkpoint.architecture, quantization)
    if twice := next(filter(None, map(weights.blocks, kinds)), None):
        raise CheckpointError(
            f"quantise: the weights are in blocks of {twice.type} already, and rounding them again would lose more; "
            "quantise the original."
        )
    moments = moments or {}
    for name, columns in ((name, weights.shape(name)[-1]) for name in kinds if name in moments):
        size = slab_width(columns)
        if moments[name].shape != (columns // size, size, size):
            raise CheckpointError(f"moments: {name} has {columns} inputs, not those of {tuple(moments[name].shape)}.")
        if not moments[name].isfinite().all():
            raise CheckpointError(f"moments: the inputs of {name} were not all finite; calibrate on another text.")
    if strange := [name for name in moments if name not in kinds]:
        raise CheckpointError(f"moments: this model has no {few(strange)}.")
    if odd := [
        n for n, shape in parameters(checkpoint.architecture).items() if _multiplies(n, shape) and n not in kinds
    ]:
        notice(f"quantise: {few(odd)} stay in floats: their columns are no multiple of {GROUP}.")
    if checkpoint.layout.binding is not None and not checkpoint.layout.gguf and checkpoint.layout.binding.leftovers:
        notice(f"quantise: {few(checkpoint.layout.binding.leftovers)}, which came along unused, are left behind.")
    tensors: dict[str, Blocks | Tensor] = {}
    report: list[Rounded] = []
    for name in weights.names:
        weight, seen = weights.read(name), moments.get(name)
        if name not in kinds:
            tensors[name] = weight.clone()
            continue
        tensors[name] = rounded = _rounded(name, weight.flatten(0, -2), kinds[name], seen)
        bits = 8 * rounded.data.numel() / weight.numel()
        outputs = None if seen is None else output_error(weight, rounded, seen)
        shape, error = (rounded.rows, rounded.columns), relative_error(weight.flatten(0, -2), rounded)
        report.append(Rounded(name, rounded.type, shape, bits, error, outputs))
    shapes = {name: weights.shape(name) for name in kinds}
    return _with_source(checkpoint, _RoundedSource(tensors, shapes), as_device(device)), report


def _rounded(name: str, weight: Tensor, kind: str, moments: Tensor | None) -> Blocks:
    if moments is None or name in _VOCABULARY:  # a tied table is looked up too: each of its rows is as it is
        return round_to_blocks(weight, kind, None if moments is None else moments.diagonal(dim1=1, dim2=2).flatten())
    return compensate(weight, kind, moments)


def _multiplies(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) >= 2 and name.endswith(".weight") and (name in _VOCABULARY or name.split(".")[-2] in _IN_LAYERS)


def _with_source(checkpoint: Checkpoint, source: _RoundedSource, device: torch.device) -> Checkpoint:
    """The same checkpoint in the native dialect, its weights those of ``source``."""
    bound, layout = NativeBinding(), checkpoint.layout
    model, types = build(
        checkpoint.architecture, bound, source, lambda _, __: torch.float32, device, Path("the quantised checkpoint")
    )
    origin = layout.config if layout.family == NATIVE.name else {"family": layout.family}
    layout = dataclasses.replace(
        layout,
        family=NATIVE.name,
        gguf=False,
        binding=bound.layout,
        bound=bound,
        source=source,
        types=types,
        keeps_types=True,
        keeps_blocks=True,
        config=origin if origin and origin.get("family") else None,
        generation_config=None,
    )
    return dataclasses.replace(checkpoint, model=model, layout=layout)


@dataclass(frozen=True)
class _RoundedSource:
    """Weights under canonical names, some of them in blocks, as a ``TensorSource``; it lies in no file."""

    tensors: Mapping[str, Blocks | Tensor]
    shapes: Mapping[str, tuple[int, ...]]  # of those in blocks
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    files: tuple[Path, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        held = self._find(name)
        return self.shapes[name] if isinstance(held, Blocks) else tuple(held.shape)

    def stored_type(self, name: str) -> str:
        held = self._find(name)
        return held.type if isinstance(held, Blocks) else SPELLINGS[held.dtype]

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        held = self._find(name)
        values = held.dequantised().view(self.shapes[name]) if isinstance(held, Blocks) else held
        return values if dtype is None else values.to(dtype)

    def raw(self, name: str) -> memoryview:
        held = self._find(name)
        return bytes_of(held.data if isinstance(held, Blocks) else held)

    def _find(self, name: str) -> Blocks | Tensor:
        try:
            return self.tensors[name]
        except KeyError:
            raise no_such_tensor(name, "the quantised checkpoint") from None
