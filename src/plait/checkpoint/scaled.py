"""Quantised files of the hub as plain numbers: a source over another, where narrow numbers are multiplied by scales.

``mxfp4`` (gpt-oss; OCP Microscaling Formats 1.0, 5.3): 32 numbers of 4 bits share a power of two. A product is a
bfloat16 exactly. ``fp8`` (DeepSeek-V3): 8 bits, a float32 for each block of a matrix or for the whole; a product is
rounded to float32. Other formats are refused by name.
"""

# E experts, n blocks of a row

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plait.checkpoint.notice import CheckpointError, notice
from plait.checkpoint.source import FLOATS, PLAIN_TYPES, TensorSource, bytes_of

QUANTISATION = "quantization_config"
WEIGHTS_IN_BLOCK = 32
# e2m1: a sign, two bits of exponent, one of mantissa
_E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_E2M1 = torch.cat([_E2M1, -_E2M1]).bfloat16()
# What a byte says, by numpy, which looks it up ten times as fast: the low half, then the high half, in one number
_PAIRS = torch.stack([_E2M1.repeat(16), _E2M1.repeat_interleave(16)], 1).view(torch.int32).flatten().numpy()
_E4M3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()

Multiply = Callable[[Tensor, Tensor], Tensor]  # narrow numbers, scales -> weights


@dataclass(frozen=True)
class Scaled:
    """A weight in two stored tensors, ``narrow`` and ``scales``; ``shape`` and ``type`` are those it is read in."""

    narrow: str
    scales: str
    shape: tuple[int, ...]
    type: str
    multiply: Multiply


@dataclass(frozen=True)
class ScaledSource:
    """The tensors of ``stored``, those of ``weights`` multiplied out when they are read; ``aside`` are left out."""

    stored: TensorSource
    method: str
    weights: Mapping[str, Scaled]
    aside: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """Weights under their own names, without their scales."""
        return (*(name for name in self.stored.names if name not in self.aside), *self.weights)

    @property
    def files(self) -> tuple[Path, ...]:
        """Those of ``stored``."""
        return self.stored.files

    @property
    def metadata(self) -> Mapping[str, Any]:
        """That of ``stored``."""
        return self.stored.metadata

    @property
    def types(self) -> list[str]:
        """What the weights are read in, as torch names it."""
        return sorted({str(PLAIN_TYPES[weight.type]).removeprefix("torch.") for weight in self.weights.values()})

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of the weight."""
        return self.weights[name].shape if name in self.weights else self.stored.shape(name)

    def stored_type(self, name: str) -> str:
        """The type that a weight is read in, as it is of no one type on disk."""
        return self.weights[name].type if name in self.weights else self.stored.stored_type(name)

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """The values, computed anew each time."""
        if name not in self.weights:
            return self.stored.read(name, dtype)
        weight = self.weights[name]
        values = weight.multiply(self.stored.read(weight.narrow), self.stored.read(weight.scales))
        return values if dtype is None else values.to(dtype)

    def raw(self, name: str) -> memoryview:
        """The bytes of the values."""
        return bytes_of(self.read(name)) if name in self.weights else self.stored.raw(name)


def plain(
    config: Mapping[str, Any], source: TensorSource | None, place: Path
) -> tuple[Mapping[str, Any], TensorSource | None]:
    """A config that says nothing of quantisation, and a source of plain numbers; the same where nothing was quantised.

    Raises ``CheckpointError`` for a method that plait does not read, and over scales that are missing or do not fit.
    """
    said = config.get(QUANTISATION)
    if said is None or said == {}:
        return config, source
    if not isinstance(said, Mapping):
        raise CheckpointError(f"{place}: {QUANTISATION} is {said!r}; it must be an object with a quant_method.")
    method = said.get("quant_method") or ("bitsandbytes" if any(k.startswith("load_in_") for k in said) else None)
    if not isinstance(method, str) or method not in METHODS:
        raise CheckpointError(
            f"{place}: {QUANTISATION} says {method!r}, a format that plait does not read (it reads "
            f"{', '.join(METHODS)}); take the checkpoint that was quantised, or a GGUF file of it."
        )
    config = {key: value for key, value in config.items() if key != QUANTISATION}
    if source is None:
        return config, None
    scaled = METHODS[method](source, said)
    if not scaled.weights:
        return config, source
    types = " and ".join(scaled.types)
    notice(f"{place}: the weights are quantised ({method}); they are read as {types}, and would be saved so.")
    if method == "fp8":
        config["torch_dtype" if "torch_dtype" in config else "dtype"] = types
    return config, scaled


# MXFP4


def _mxfp4(source: TensorSource, said: Mapping[str, Any]) -> ScaledSource:
    weights: dict[str, Scaled] = {}
    names = frozenset(source.names)
    for name in (name for name in source.names if name.endswith("_blocks")):
        whole = name.removesuffix("_blocks")
        scales = _partner(names, name, f"{whole}_scales")
        if whole in names:
            raise CheckpointError(f"{whole}: it is stored twice, as it is and as {name}; one of them must go.")
        _check_type(source, name, {"U8"})
        _check_type(source, scales, {"U8", "F8_E8M0"})
        shape = source.shape(name)
        if len(shape) < 3 or shape[-1] * 2 != WEIGHTS_IN_BLOCK:
            raise CheckpointError(
                f"{name}: its shape {shape} is not that of MXFP4 blocks; it must be (..., rows, blocks, "
                f"{WEIGHTS_IN_BLOCK // 2})."
            )
        *outer, rows, n, _ = shape
        if source.shape(scales) != shape[:-1]:
            raise CheckpointError(
                f"{scales}: its shape {source.shape(scales)} does not fit {name}, {shape}: there must be a scale for "
                f"every block of {WEIGHTS_IN_BLOCK // 2} bytes."
            )
        weights[whole] = Scaled(name, scales, (*outer, n * WEIGHTS_IN_BLOCK, rows), "BF16", multiply_mxfp4)
    return ScaledSource(source, "mxfp4", weights, frozenset(s for w in weights.values() for s in (w.narrow, w.scales)))


def multiply_mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    """``(E, rows, n, 16)`` bytes, the lower half first, by ``(E, rows, n)`` exponents: ``(E, 32 n, rows)`` bfloat16.

    The order of the axes is that of gpt-oss's classes, (in, out), where the file has the rows of (out, in).
    """
    weights = torch.empty(*blocks.shape[:-2], blocks.shape[-2] * WEIGHTS_IN_BLOCK, dtype=torch.bfloat16)
    for target, block, scale in zip(weights, blocks, scales, strict=True):  # an expert at a time
        numbers = torch.from_numpy(_PAIRS[block.numpy()]).view(torch.bfloat16)  # rows n 32
        powers = scale.view(torch.float8_e8m0fnu).to(torch.bfloat16).unsqueeze(-1)
        torch.mul(numbers, powers, out=target.unflatten(-1, (-1, WEIGHTS_IN_BLOCK)))
    return weights.transpose(-1, -2)


# FP8


def _fp8(source: TensorSource, said: Mapping[str, Any]) -> ScaledSource:
    block = _block_size(said)
    weights: dict[str, Scaled] = {}
    names = frozenset(source.names)
    for name in (name for name in source.names if source.stored_type(name) == "F8_E4M3"):
        scales, shape = _partner(names, name, f"{name}_scale_inv"), source.shape(name)
        _check_type(source, scales, FLOATS | {"F8_E8M0"})
        one = math.prod(source.shape(scales)) == 1
        needed = tuple(-(-n // b) for n, b in zip(shape, block, strict=True)) if len(block) == len(shape) == 2 else None
        if not one and source.shape(scales) != needed:
            raise CheckpointError(
                f"{scales}: its shape {source.shape(scales)} does not fit {name}, {shape}, in blocks of {block} "
                f"({QUANTISATION}.weight_block_size)."
            )
        weights[name] = Scaled(name, scales, shape, "F32", _by_one if one else _by_blocks(*block))
    aside = {tensor for weight in weights.values() for tensor in (weight.narrow, weight.scales)}
    # How to round what goes in, which nothing does here
    aside |= {name for name in source.names if name.endswith((".activation_scale", ".input_scale"))}
    return ScaledSource(source, "fp8", weights, frozenset(aside))


def _block_size(said: Mapping[str, Any]) -> list[int]:
    """Rows and columns; empty where a scale is a whole matrix's."""
    block: Any = said.get("weight_block_size")
    if block is None:
        return []
    if not isinstance(block, list) or len(block) != 2 or not all(type(n) is int and n > 0 for n in block):
        raise CheckpointError(
            f"{QUANTISATION}.weight_block_size: {block!r} is no size of a block; give two whole numbers from 1."
        )
    return block


def _by_blocks(rows: int, columns: int) -> Multiply:
    """A scale for every ``rows`` by ``columns`` numbers of a matrix."""

    def multiply(narrow: Tensor, scales: Tensor) -> Tensor:
        weights = _wide(narrow)
        for i, line in enumerate(scales.float()):
            weights[i * rows : (i + 1) * rows] *= line.repeat_interleave(columns)[: weights.shape[1]]
        return weights

    return multiply


def _by_one(narrow: Tensor, scale: Tensor) -> Tensor:
    return _wide(narrow).mul_(scale.float().reshape(()))


def _wide(narrow: Tensor) -> Tensor:
    return torch.from_numpy(_E4M3.take(narrow.view(torch.uint8).numpy().reshape(-1))).view(narrow.shape)


def _partner(names: Collection[str], name: str, scales: str) -> str:
    if scales not in names:
        raise CheckpointError(f"{name}: it is quantised, and its scales, {scales}, are not stored.")
    return scales


def _check_type(source: TensorSource, name: str, types: Collection[str]) -> None:
    if source.stored_type(name) not in types:
        raise CheckpointError(
            f"{name}: it is stored as {source.stored_type(name)}; this format has {' or '.join(sorted(types))} there."
        )


METHODS: dict[str, Callable[[TensorSource, Mapping[str, Any]], ScaledSource]] = {"mxfp4": _mxfp4, "fp8": _fp8}
