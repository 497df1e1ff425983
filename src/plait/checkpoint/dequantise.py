"""Quantised blocks, as GGUF files store them, back to float32: a table of formats.

The layouts are ggml's (``ggml-quants.c``); every product and sum is in float32 and in ggml's order, so the values are
the ones its own reference implementation gives, to the bit.
"""

# n blocks of a tensor, along its rows; every block is s bytes and holds w weights

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Bytes = NDArray[Any]  # uint8
Floats = NDArray[Any]  # float32


@dataclass(frozen=True)
class BlockFormat:
    """How many weights a block holds, in how many bytes; ``read``: ``(n, bytes)`` uint8 -> n blocks of float32."""

    weights: int
    bytes: int
    read: Callable[[Bytes], Floats]


def dequantise(blocks: Tensor, kind: str) -> Tensor:
    """The float32 weights in ``blocks``: ``(n, bytes of a block)`` uint8 -> ``(n, weights of a block)``.

    Spread over as many threads as torch may use, but not by torch: its threads wait for each other after each of some
    ten small steps, and on a machine that is busy that takes a hundred times as long as the work.
    """
    read = BLOCK_FORMATS[kind].read
    weights = torch.empty(len(blocks), BLOCK_FORMATS[kind].weights)
    source, target = blocks.numpy(), weights.numpy()

    def read_piece(start: int) -> None:
        out = target[start : start + _PIECE]
        out[:] = read(source[start : start + _PIECE]).reshape(out.shape)

    starts = range(0, len(blocks), _PIECE)
    n_threads = min(torch.get_num_threads(), len(starts) // 8)  # fewer pieces are read before a thread has started
    if n_threads < 2:
        for start in starts:
            read_piece(start)
    else:
        with ThreadPoolExecutor(n_threads) as threads:
            list(threads.map(read_piece, starts))
    return weights


_PIECE = 8192  # blocks at a time: what is in between stays in the cache of a core


def _half(blocks: Bytes, start: int) -> Floats:
    """The float16 number at byte ``start`` of every block."""
    return blocks[:, start : start + 2].view(np.float16).astype(np.float32)  # n 1


def _floats(whole: Bytes, offset: int = 0) -> Floats:
    values = whole.astype(np.float32)
    if offset:
        values -= offset
    return values


def _scaled(values: Floats, scale: Floats) -> Floats:
    values *= scale
    return values


def _shifted(values: Floats, low: Floats) -> Floats:
    values += low
    return values


def fields(packed: Bytes, bits: int, count: int) -> Bytes:
    """Bytes ``(..., s)`` cut into ``count`` fields of ``bits``, the lowest first: ``(..., count, s)``."""
    fields = np.empty((*packed.shape[:-1], count, packed.shape[-1]), np.uint8)
    for i in range(count):
        np.right_shift(packed, bits * i, out=fields[..., i, :])
    fields &= 2**bits - 1
    return fields


def _nibbles(blocks: Bytes, start: int) -> Bytes:
    """16 bytes hold 32 weights: the low halves are the first 16."""
    return fields(blocks[:, start : start + 16], 4, 2).reshape(-1, 32)


def _fifth_bits(blocks: Bytes, start: int) -> Bytes:
    """4 bytes hold a bit for each of 32 weights."""
    return np.unpackbits(blocks[:, start : start + 4], axis=1, bitorder="little") << 4  # n 32


def _q8_0(b: Bytes) -> Floats:
    return _scaled(_floats(b[:, 2:].view(np.int8)), _half(b, 0))


def _q4_0(b: Bytes) -> Floats:
    return _scaled(_floats(_nibbles(b, 2), 8), _half(b, 0))


def _q4_1(b: Bytes) -> Floats:
    return _shifted(_scaled(_floats(_nibbles(b, 4)), _half(b, 0)), _half(b, 2))


def _q5_0(b: Bytes) -> Floats:
    return _scaled(_floats(_nibbles(b, 6) | _fifth_bits(b, 2), 16), _half(b, 0))


def _q5_1(b: Bytes) -> Floats:
    return _shifted(_scaled(_floats(_nibbles(b, 8) | _fifth_bits(b, 4)), _half(b, 0)), _half(b, 2))


# The K-quants: 256 weights in 8 or 16 groups, each group with a small scale of its own under the block's.


def _grouped(q: Bytes, scales: Floats, minima: Floats) -> Floats:
    """``q`` ``(n, groups, w)``, scales and minima ``(n, groups)``."""
    return _shifted(_scaled(_floats(q), scales[..., None]), -minima[..., None])


def _q2_k(b: Bytes) -> Floats:
    scales = b[:, :16]
    q = fields(b[:, 16:80].reshape(-1, 2, 32), 2, 4).reshape(-1, 16, 16)
    return _grouped(q, _half(b, 80) * (scales & 15), _half(b, 82) * (scales >> 4))


def _q3_k(b: Bytes) -> Floats:
    low = fields(b[:, 96:104], 4, 2).reshape(-1, 16)
    high = fields(b[:, 104:108], 2, 4).reshape(-1, 16)
    scales = _half(b, 108) * _floats(low | high << 4, 32)
    q = _floats(fields(b[:, 32:96].reshape(-1, 2, 32), 2, 4).reshape(-1, 16, 16))
    q -= (fields(b[:, :32], 1, 8).reshape(-1, 16, 16) ^ 1) << 2  # a set bit means that nothing is taken off
    return _scaled(q, scales[..., None])


def group_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """12 bytes hold 8 scales and 8 minima of 6 bits: four of each whole, the others split between two bytes."""
    scale, low, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([scale & 63, (rest & 15) | ((scale >> 2) & 48)], axis=1)
    minima = np.concatenate([low & 63, (rest >> 4) | ((low >> 2) & 48)], axis=1)
    return scales, minima  # n 8, n 8


def _q4_k(b: Bytes) -> Floats:
    scales, minima = group_scales(b[:, 4:16])
    q = fields(b[:, 16:144].reshape(-1, 4, 32), 4, 2).reshape(-1, 8, 32)
    return _grouped(q, _half(b, 0) * scales, _half(b, 2) * minima)


def _q5_k(b: Bytes) -> Floats:
    scales, minima = group_scales(b[:, 4:16])
    q = fields(b[:, 48:176].reshape(-1, 4, 32), 4, 2).reshape(-1, 8, 32) | fields(b[:, 16:48], 1, 8) << 4
    return _grouped(q, _half(b, 0) * scales, _half(b, 2) * minima)


def _q6_k(b: Bytes) -> Floats:
    scales = _half(b, 208) * b[:, 192:208].view(np.int8)
    low = fields(b[:, :128].reshape(-1, 2, 64), 4, 2).reshape(-1, 8, 32)
    high = fields(b[:, 128:192].reshape(-1, 2, 32), 2, 4).reshape(-1, 8, 32)
    return _scaled(_floats((low | high << 4).reshape(-1, 16, 16), 32), scales[..., None])


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
