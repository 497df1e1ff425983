"""Packed matrices: panels of 16 rows, interleaved over the inputs, as the kernels read them; csrc/formats.h draws them.

Packing and unpacking are torch's work and need no kernels: what was packed on one machine is read on any.
"""

# p panels of 16 rows, g groups of inputs, K inputs

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from plait.checkpoint.blocks import Blocks
from plait.checkpoint.dequantise import BLOCK_FORMATS, Bytes, Floats, fields, group_scales

PANEL = 16  # rows


@dataclass(frozen=True)
class Layout:
    """A format: its number in the kernels, the inputs of a group, a group's bytes in a panel, and how it is stored.

    ``scale`` is the type of scales and minimums, ``bits`` those of a quantised weight; both empty for plain numbers.
    """

    number: int
    inputs: int
    bytes: int
    bits: int = 0
    scale: torch.dtype | None = None
    minimum: bool = False

    @property
    def header(self) -> int:
        """Bytes of scales and minimums before the quantised weights of a group."""
        return 0 if self.scale is None else PANEL * self.scale.itemsize * (1 + self.minimum)


FORMATS = {
    "F32": Layout(0, 1, 64),
    "BF16": Layout(1, 2, 64),
    "I8": Layout(2, 32, 544, 8, torch.float16),
    "I8W": Layout(3, 16, 320, 8, torch.float32),
    "I4": Layout(4, 32, 288, 4, torch.float16),
    "I4M": Layout(5, 32, 320, 4, torch.float16, True),
    "I4MW": Layout(6, 32, 384, 4, torch.float32, True),
}


@dataclass(frozen=True)
class Packed:
    """A matrix of ``rows`` outputs and ``columns`` inputs; ``data``: its panels, uint8, aligned to 64 bytes."""

    format: str
    rows: int
    columns: int
    data: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.data.numel()

    @property
    def groups(self) -> int:
        """Groups of inputs."""
        return -(-self.columns // FORMATS[self.format].inputs)


def packed_bytes(format: str, rows: int, columns: int) -> int:
    """The size of a packed matrix."""
    layout = FORMATS[format]
    return -(-rows // PANEL) * -(-columns // layout.inputs) * layout.bytes


def pack(weight: Tensor, format: str) -> Packed:
    """``weight (rows, columns)`` as F32 or BF16 (rounded to the nearest even)."""
    if format not in ("F32", "BF16"):
        raise ValueError(f"pack() makes F32 and BF16; {format} is made of quantised groups by pack_groups().")
    if weight.dim() != 2:
        raise ValueError(f"A packed weight is a matrix; this one has the shape {tuple(weight.shape)}.")
    rows, columns = weight.shape
    packed = _empty(format, rows, columns)
    if format == "F32":
        words, target = weight.float(), packed.data.view(torch.float32)
    else:
        words = _wide(weight.bfloat16(), 2 * packed.groups).contiguous().view(torch.int32)  # two inputs in a word
        target = packed.data.view(torch.int32)
    _interleave(words[:, :, None], target.view(-1, packed.groups, 1, PANEL))
    return packed


def pack_groups(quants: Tensor, scales: Tensor, minimums: Tensor | None, format: str) -> Packed:
    """Integers as they are: ``quants (rows, columns)``, ``scales`` and ``minimums (rows, groups)``.

    int8 for I8 and I8W; uint8 from 0 to 15 for the others, of which I4 stands for ``scale * (q - 8)``.
    """
    layout = FORMATS[format]
    rows, columns = quants.shape
    packed = _empty(format, rows, columns)
    if layout.scale is None or layout.minimum != (minimums is not None):
        raise ValueError(f"{format} does not have these parts: minimums are for I4M and I4MW, and only for them.")
    if quants.dtype != (torch.int8 if layout.bits == 8 else torch.uint8):
        raise ValueError(f"{format} takes {'int8' if layout.bits == 8 else 'uint8'} integers, not {quants.dtype}.")
    for part in (scales, minimums):
        if part is not None and part.shape != (rows, packed.groups):
            raise ValueError(
                f"{(rows, columns)} in {format} has scales {(rows, packed.groups)}, not {tuple(part.shape)}."
            )
    whole = _wide(quants, packed.groups * layout.inputs, 8 if format == "I4" else 0).contiguous()
    whole = whole.view(rows, packed.groups, layout.inputs)
    if layout.bits == 4:
        whole = whole[..., :16] | whole[..., 16:] << 4
    _fill(packed, 0, whole, scales, minimums)
    return packed


def pack_blocks(blocks: Blocks) -> Packed:
    """GGUF's quantised blocks, whose numbers are kept to the bit."""
    if blocks.type not in BLOCKS:
        raise ValueError(f"{blocks.type} blocks have no packed format; those that have: {', '.join(BLOCKS)}.")
    format, read = BLOCKS[blocks.type]
    packed = _empty(format, blocks.rows, blocks.columns)
    stored = BLOCK_FORMATS[blocks.type]
    whole = blocks.data.reshape(blocks.rows, blocks.columns // stored.weights, stored.bytes).numpy()
    step = max(PANEL, _PIECE // max(1, blocks.columns) // PANEL * PANEL)  # what is in between stays in the cache
    for start in range(0, blocks.rows, step):
        quants, scales, minimums = read(whole[start : start + step])
        low = None if minimums is None else torch.from_numpy(minimums)
        _fill(packed, start, torch.from_numpy(quants), torch.from_numpy(scales), low)
    return packed


_PIECE = 1 << 18  # weights at a time


def unpack(packed: Packed) -> Tensor:
    """The weights, float32 ``(rows, columns)``."""
    layout = FORMATS[packed.format]
    if layout.scale is None:
        dtype = torch.float32 if packed.format == "F32" else torch.int32
        words = packed.data.view(dtype).view(-1, packed.groups, PANEL).transpose(1, 2)
        words = words.clone(memory_format=torch.contiguous_format).flatten(0, 1)  # contiguous() skips widths of 1
        weights = words if packed.format == "F32" else words.view(torch.bfloat16).float()
        return weights[: packed.rows, : packed.columns]
    quants, scales, minimums = groups(packed)
    weights = quants.float().view(packed.rows, packed.groups, -1)
    if packed.format == "I4":
        weights -= 8
    weights *= scales[:, :, None].float()
    if minimums is not None:
        weights += minimums[:, :, None].float()
    return weights.flatten(1)[:, : packed.columns]


def groups(packed: Packed) -> tuple[Tensor, Tensor, Tensor | None]:
    """What ``pack_groups`` was given, the last group filled up: ``quants (rows, g * inputs)``, scales, minimums."""
    layout = FORMATS[packed.format]
    if layout.scale is None:
        raise ValueError(f"{packed.format} holds plain numbers, no groups.")

    def rows(words: Tensor) -> Tensor:  # p g v 16 -> rows g v
        return words.permute(0, 3, 1, 2).flatten(0, 1)[: packed.rows].contiguous()

    scales, minimums, words = _fields(packed)
    quants = rows(words).view(torch.int8 if layout.bits == 8 else torch.uint8)
    if layout.bits == 4:
        quants = torch.cat([quants & 15, quants >> 4], dim=2)
    low = rows(minimums)[..., 0] if layout.minimum else None
    return quants.flatten(1), rows(scales)[..., 0], low


def stack(parts: Sequence[Packed]) -> Packed:
    """The parts' rows, one part after the other, in one matrix: what reads the same inputs is multiplied at once."""
    first, *rest = parts
    if any((part.format, part.columns) != (first.format, first.columns) for part in rest):
        kinds = ", ".join(f"{part.format} of {part.columns} inputs" for part in parts)
        raise ValueError(f"Stacked matrices have one format and one number of inputs; these are {kinds}.")
    if not rest:
        return first
    if all(part.rows % PANEL == 0 for part in parts[:-1]):
        stacked = _empty(first.format, sum(part.rows for part in parts), first.columns)
        torch.cat([part.data for part in parts], out=stacked.data)
        return stacked
    if FORMATS[first.format].scale is None:
        return pack(torch.cat([unpack(part) for part in parts]), first.format)
    quants, scales, minimums = zip(*(groups(part) for part in parts), strict=True)
    low = torch.cat(minimums) if FORMATS[first.format].minimum else None
    return pack_groups(torch.cat(quants)[:, : first.columns], torch.cat(scales), low, first.format)


def _empty(format: str, rows: int, columns: int) -> Packed:
    data = torch.empty(packed_bytes(format, rows, columns), dtype=torch.uint8)
    if rows % PANEL:  # the last panel has rows that nobody fills
        data[packed_bytes(format, rows - rows % PANEL, columns) :] = 0
    return Packed(format, rows, columns, data)


def _fields(packed: Packed) -> tuple[Tensor, Tensor, Tensor]:
    """Views: scales and minimums ``(p, g, 1, 16)``, and the integers in words of 2 or 4 bytes ``(p, g, v, 16)``."""
    layout = FORMATS[packed.format]
    assert layout.scale is not None
    whole = packed.data.view(-1, packed.groups, layout.bytes)
    numbers = whole[..., : layout.header].view(layout.scale).unflatten(2, (-1, 1, PANEL))
    words = whole[..., layout.header :].view(torch.int16 if layout.bits == 8 else torch.int32)
    return numbers[:, :, 0], numbers[:, :, -1], words.unflatten(2, (-1, PANEL))


def _fill(packed: Packed, start: int, quants: Tensor, scales: Tensor, minimums: Tensor | None) -> None:
    """Write rows from ``start``, a multiple of 16: ``quants (rows, g, bytes)``, scales and minimums ``(rows, g)``."""
    panel = start // PANEL
    to_scales, to_minimums, to_words = (field[panel:] for field in _fields(packed))
    quants = quants.flatten().view(quants.shape)  # of a single row or block, numpy's strides may be any
    _interleave(quants.view(to_words.dtype), to_words)
    _interleave(scales[..., None], to_scales)
    if minimums is not None:
        _interleave(minimums[..., None], to_minimums)


def _interleave(rows: Tensor, panels: Tensor) -> None:
    """Copy ``rows (rows, g, v)`` to the first panels of ``(p, g, v, 16)``."""
    whole = len(rows) // PANEL
    panels[:whole] = rows[: whole * PANEL].unflatten(0, (whole, PANEL)).permute(0, 2, 3, 1)
    if len(rows) % PANEL:
        panels[whole, :, :, : len(rows) % PANEL] = rows[whole * PANEL :].permute(1, 2, 0)


def _wide(matrix: Tensor, columns: int, value: int = 0) -> Tensor:
    """The matrix with as many columns, the new ones filled."""
    return F.pad(matrix, (0, columns - matrix.shape[1]), value=value) if columns > matrix.shape[1] else matrix


# How each kind of block is read: (rows, blocks, bytes) -> integers (rows, g, bytes) as a panel has them, scales and
# minimums (rows, g). The halves of a byte of Q4_0 and Q4_1 are paired as ours are.

Parts = tuple[Bytes, Floats, Floats | None]


def _halves(b: Bytes, start: int) -> Floats:
    return b[..., start : start + 2].view(np.float16)[..., 0]


def _q8_0(b: Bytes) -> Parts:
    return np.ascontiguousarray(b[..., 2:]), _halves(b, 0), None


def _q4_0(b: Bytes) -> Parts:
    return np.ascontiguousarray(b[..., 2:]), _halves(b, 0), None


def _q4_1(b: Bytes) -> Parts:
    return np.ascontiguousarray(b[..., 4:]), _halves(b, 0), _halves(b, 2)


def _q4_k(b: Bytes) -> Parts:
    rows = len(b)
    scales, minimums = group_scales(b.reshape(-1, 144)[:, 4:16])
    scale = _halves(b, 0).astype(np.float32).reshape(-1, 1) * scales
    minimum = _halves(b, 2).astype(np.float32).reshape(-1, 1) * minimums
    q = b[..., 16:].reshape(rows, -1, 2, 16)  # 32 bytes: the low halves are a group of 32, the high halves the next
    low = (q[:, :, 0] & 15) | (q[:, :, 1] << 4)
    high = (q[:, :, 0] >> 4) | (q[:, :, 1] & 240)
    return np.stack([low, high], axis=2).reshape(rows, -1, 16), scale.reshape(rows, -1), -minimum.reshape(rows, -1)


def _q6_k(b: Bytes) -> Parts:
    rows = len(b)
    scale = _halves(b, 208).astype(np.float32)[..., None] * b[..., 192:208].view(np.int8)
    low = fields(b[..., :128].reshape(-1, 2, 64), 4, 2).reshape(-1, 8, 32)
    high = fields(b[..., 128:192].reshape(-1, 2, 32), 2, 4).reshape(-1, 8, 32)
    q = (low | high << 4).reshape(rows, -1, 16).view(np.int8) - np.int8(32)
    return q.view(np.uint8), scale.reshape(rows, -1), None


BLOCKS: dict[str, tuple[str, Callable[[Bytes], Parts]]] = {
    "Q8_0": ("I8", _q8_0),
    "Q4_0": ("I4", _q4_0),
    "Q4_1": ("I4M", _q4_1),
    "Q4_K": ("I4MW", _q4_k),
    "Q6_K": ("I8W", _q6_k),
}
