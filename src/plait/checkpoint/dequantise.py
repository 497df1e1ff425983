"""Quantised blocks, as GGUF files store them, back to float32: a table of formats.

The layouts are ggml's (``ggml-quants.c``); every product and sum is in float32 and in ggml's order, so the values are
the ones its own reference implementation gives, to the bit.
"""

# n blocks of a tensor, along its rows; every block is s bytes and holds w weights

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockFormat:
    """How many weights a block holds, in how many bytes; ``read``: ``(n, bytes)`` uint8 -> ``(n, weights)`` float32."""

    weights: int
    bytes: int
    read: Callable[[Tensor], Tensor]


def dequantise(blocks: Tensor, kind: str) -> Tensor:
    """The float32 weights in ``blocks``: ``(n, bytes of a block)`` uint8 -> ``(n, weights of a block)``."""
    read = BLOCK_FORMATS[kind].read
    weights = torch.empty(len(blocks), BLOCK_FORMATS[kind].weights)
    for piece, out in zip(blocks.split(_PIECE), weights.split(_PIECE), strict=True):
        out.copy_(read(piece).view_as(out))
    return weights


_PIECE = 16384  # blocks at a time: what is in between stays in the cache of a core


def _half(blocks: Tensor, start: int) -> Tensor:
    """The float16 number at byte ``start`` of every block."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()  # n 1


def _signed(blocks: Tensor, start: int, count: int) -> Tensor:
    return blocks[:, start : start + count].contiguous().view(torch.int8)


def _fields(packed: Tensor, bits: int, count: int) -> Tensor:
    """Bytes ``(..., s)`` cut into ``count`` fields of ``bits``, the lowest first: ``(..., count, s)``."""
    packed, mask = packed.contiguous(), 2**bits - 1
    return torch.stack([(packed >> bits * i) & mask for i in range(count)], dim=-2)


def _nibbles(blocks: Tensor, start: int) -> Tensor:
    """16 bytes hold 32 weights: the low halves are the first 16."""
    return _fields(blocks[:, start : start + 16], 4, 2).flatten(1)  # n 32


def _fifth_bits(blocks: Tensor, start: int) -> Tensor:
    """4 bytes hold a bit for each of 32 weights."""
    bits = blocks[:, start : start + 4, None].expand(-1, -1, 8) >> torch.arange(8, dtype=torch.uint8)  # n 4 8
    return ((bits & 1) << 4).flatten(1)  # n 32


def _q8_0(b: Tensor) -> Tensor:
    return _signed(b, 2, 32).float().mul_(_half(b, 0))


def _q4_0(b: Tensor) -> Tensor:
    return _nibbles(b, 2).float().sub_(8).mul_(_half(b, 0))


def _q4_1(b: Tensor) -> Tensor:
    return _nibbles(b, 4).float().mul_(_half(b, 0)).add_(_half(b, 2))


def _q5_0(b: Tensor) -> Tensor:
    return (_nibbles(b, 6) | _fifth_bits(b, 2)).float().sub_(16).mul_(_half(b, 0))


def _q5_1(b: Tensor) -> Tensor:
    return (_nibbles(b, 8) | _fifth_bits(b, 4)).float().mul_(_half(b, 0)).add_(_half(b, 2))


# The K-quants: 256 weights in 8 or 16 groups, each group with a small scale of its own under the block's.


def _q2_k(b: Tensor) -> Tensor:
    scales, d, d_min = b[:, :16], _half(b, 80), _half(b, 82)
    q = _fields(b[:, 16:80].view(-1, 2, 32), 2, 4).view(-1, 16, 16)  # n groups 16
    return q.float().mul_((d * (scales & 15)).unsqueeze(-1)).sub_((d_min * (scales >> 4)).unsqueeze(-1))


def _q3_k(b: Tensor) -> Tensor:
    low = _fields(b[:, 96:104], 4, 2).flatten(1)  # n 16
    high = _fields(b[:, 104:108], 2, 4).flatten(1)  # n 16
    scales = _half(b, 108) * (low | (high << 4)).float().sub_(32)
    q = _fields(b[:, 32:96].view(-1, 2, 32), 2, 4).view(-1, 16, 16)
    missing = (_fields(b[:, :32], 1, 8) ^ 1).view(-1, 16, 16)  # a set bit means that nothing is taken off
    return q.float().sub_(missing << 2).mul_(scales.unsqueeze(-1))


def _group_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """12 bytes hold 8 scales and 8 minima of 6 bits: four of each whole, the others split between two bytes."""
    scale, low, rest = packed.view(-1, 3, 4).unbind(1)
    scales = torch.cat([scale & 63, (rest & 15) | ((scale >> 2) & 48)], dim=1)
    minima = torch.cat([low & 63, (rest >> 4) | ((low >> 2) & 48)], dim=1)
    return scales, minima  # n 8, n 8


def _q4_k(b: Tensor) -> Tensor:
    scales, minima = _group_scales(b[:, 4:16].contiguous())
    q = _fields(b[:, 16:144].view(-1, 4, 32), 4, 2).view(-1, 8, 32)
    return q.float().mul_((_half(b, 0) * scales).unsqueeze(-1)).sub_((_half(b, 2) * minima).unsqueeze(-1))


def _q5_k(b: Tensor) -> Tensor:
    scales, minima = _group_scales(b[:, 4:16].contiguous())
    q = _fields(b[:, 48:176].view(-1, 4, 32), 4, 2).view(-1, 8, 32) | (_fields(b[:, 16:48], 1, 8) << 4)
    return q.float().mul_((_half(b, 0) * scales).unsqueeze(-1)).sub_((_half(b, 2) * minima).unsqueeze(-1))


def _q6_k(b: Tensor) -> Tensor:
    scales = _half(b, 208) * _signed(b, 192, 16)
    low = _fields(b[:, :128].view(-1, 2, 64), 4, 2).view(-1, 8, 32)
    high = _fields(b[:, 128:192].view(-1, 2, 32), 2, 4).view(-1, 8, 32)
    return (low | (high << 4)).float().sub_(32).view(-1, 16, 16).mul_(scales.unsqueeze(-1))


BLOCK_FORMATS = {
    "Q4_0": BlockFormat(32, 18, _q4_0),
    "Q4_1": BlockFormat(32, 20, _q4_1),
    "Q5_0": BlockFormat(32, 22, _q5_0),
    "Q5_1": BlockFormat(32, 24, _q5_1),
    "Q8_0": BlockFormat(32, 34, _q8_0),
    "Q2_K": BlockFormat(256, 84, _q2_k),
    "Q3_K": BlockFormat(256, 110, _q3_k),
    "Q4_K": BlockFormat(256, 144, _q4_k),
    "Q5_K": BlockFormat(256, 176, _q5_k),
    "Q6_K": BlockFormat(256, 210, _q6_k),
}
