"""Bytes: of the weights by how they are stored, and of a cache."""

from __future__ import annotations

from math import ceil, prod

from plait.account.tensors import chooses, multiplies
from plait.architecture import Architecture
from plait.parameters import Shape, parameters

WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2}
GROUP = 32
# Quantised: a group of 32 weights of a row and its 16-bit scale, as in GGUF's Q8_0 and Q4_0.
GROUP_BYTES = {"int8": GROUP + 2, "int4": GROUP // 2 + 2}
DTYPES = (*WIDTHS, *GROUP_BYTES)


def weight_bytes(architecture: Architecture, dtype: str) -> int:
    """Bytes of all parameters, stored as ``dtype``: fp32, bf16, fp16, int8 or int4.

    int8 and int4 store the matrices in groups of 32 with a 16-bit scale, and the vocabulary's tables in 8 bits so; the
    rest is fp32.
    """
    return sum(tensor_bytes(name, shape, dtype) for name, shape in parameters(architecture).items())


def tensor_bytes(name: str, shape: Shape, dtype: str) -> int:
    """Bytes of one parameter, by the rule of ``weight_bytes``."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype!r} is none of {', '.join(DTYPES)}.")
    if dtype in WIDTHS:
        return prod(shape) * WIDTHS[dtype]
    if chooses(name) or not (multiplies(name) or name.endswith(".tokens.weight")):
        return prod(shape) * WIDTHS["fp32"]
    rows, width = prod(shape[:-1]), shape[-1]
    vocabulary = name.endswith(".tokens.weight") or name == "head.output.weight"
    return rows * ceil(width / GROUP) * GROUP_BYTES["int8" if vocabulary else dtype]


def cache_bytes(
    architecture: Architecture,
    length: int,
    *,
    batch: int = 1,
    dtype: str = "bf16",
    source_length: int | None = None,
    sliding: bool = False,
) -> int:
    """Bytes of the keys and values of ``batch`` rows of ``length`` tokens, and of their sources' (default ``length``).

    ``sliding``: a layer with a window w keeps only what the next token sees besides itself, w - 1 tokens. An encoder
    alone caches nothing.
    """
    if dtype not in WIDTHS:
        raise ValueError(f"dtype: {dtype!r} is none of {', '.join(WIDTHS)}.")
    if architecture.kind == "encoder":
        return 0
    tower = architecture.tower("decoder")
    windows = [layer.window if sliding else None for layer in tower.layers]
    tokens = sum(length if window is None else min(length, window - 1) for window in windows)
    if tower.cross:
        tokens += tower.n_layers * (length if source_length is None else source_length)
    return 2 * batch * tokens * tower.n_kv_heads * tower.d_head * WIDTHS[dtype]
