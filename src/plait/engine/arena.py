"""The arena: what was packed in memory, side by side in huge pages, in the order in which a step reads it."""

from __future__ import annotations

import dataclasses
import mmap
from collections.abc import Mapping

import torch

from plait.engine.packed import Packed
from plait.engine.store import HUGE, in_huge_pages

_ALIGNMENT = 64


def gathered(matrices: Mapping[tuple[str, ...], Packed]) -> dict[tuple[str, ...], Packed]:
    """The same matrices in one stretch of memory; themselves where the system has no huge pages."""
    total = sum(_whole(packed.nbytes) for packed in matrices.values())
    if not hasattr(mmap, "MADV_HUGEPAGE") or not total:
        return dict(matrices)
    memory = mmap.mmap(-1, total + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has no huge pages
    in_huge_pages(memory)
    bytes_ = torch.frombuffer(memory, dtype=torch.uint8)
    at = -bytes_.data_ptr() % HUGE
    found: dict[tuple[str, ...], Packed] = {}
    for names, packed in matrices.items():
        place = bytes_[at : at + packed.nbytes]
        place.copy_(packed.data)
        found[names] = dataclasses.replace(packed, data=place)
        at += _whole(packed.nbytes)
    return found


def _whole(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
