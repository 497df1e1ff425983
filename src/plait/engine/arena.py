"""The arena: packed matrices side by side in huge pages, in the order in which a step reads them.

A step reads all weights. With pages of 4 KiB it spends a third of its time looking up addresses, with a file's pages,
of which only some are large, almost as much; pages of 2 MiB that belong to the process alone are read at full speed.
"""

from __future__ import annotations

import dataclasses
import mmap
from collections.abc import Mapping

import torch
from torch import Tensor

from plait.engine.packed import Packed

_HUGE, _ALIGNMENT = 2 << 20, 64


def stretch(size: int) -> Tensor | None:
    """``size`` bytes in huge pages, uint8 zeros; ``None`` where the system has no such pages."""
    if not hasattr(mmap, "MADV_HUGEPAGE") or not size:
        return None
    memory = mmap.mmap(-1, size + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has none
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # a kernel without them
        return None
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % _HUGE
    return whole[start : start + size]


def gathered(matrices: Mapping[tuple[str, ...], Packed]) -> dict[tuple[str, ...], Packed]:
    """The same matrices in one stretch of memory; themselves where the system has no huge pages."""
    memory = stretch(sum(_whole(packed.nbytes) for packed in matrices.values()))
    if memory is None:
        return dict(matrices)
    found: dict[tuple[str, ...], Packed] = {}
    for names, packed in matrices.items():
        place, memory = memory[: packed.nbytes], memory[_whole(packed.nbytes) :]
        place.copy_(packed.data)
        found[names] = dataclasses.replace(packed, data=place)
    return found


def _whole(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
