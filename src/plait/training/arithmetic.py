"""Arithmetic: what a target costs on paper, and what the machine could do, so that a run's speed has a measure."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from plait.account import flops
from plait.account.flops import Flops
from plait.architecture import Architecture, Classification
from plait.data.batch import Batch
from plait.generation.machine import product_rate

SIDES = {"cpu": 1024, "cuda": 8192}  # of the matrices that the machine is measured with: large enough to fill it


def flops_per_target(architecture: Architecture, batches: Iterable[Batch]) -> float:
    """Floating-point operations of a training step for each real target, over these batches.

    Padding is work that is asked for and counted; the head reads only the places that have a target. It is three
    forward passes, as in ``account.flops.training_step``.
    """
    work = targets = 0
    for batch in batches:
        rows, length = batch.tokens.shape
        source = None if batch.source is None else batch.source.shape[1]
        forward = flops.forward(architecture, length, batch=rows, source_length=source)
        real = int(batch.real.sum())
        work += 3 * (forward.total - forward.head + _head(architecture, forward, real, rows * length))
        targets += real
    return work / targets if targets else 0.0


def _head(architecture: Architecture, forward: Flops, real: int, places: int) -> float:
    return forward.head if isinstance(architecture.head, Classification) else forward.head * real / places


def peak(precision: str, device: str = "cpu") -> float:
    """FLOPs a second of this machine's matrix products in a run's precision, measured now: some tenths of a second."""
    dtype = {"float32": torch.float32, "float16": torch.float16}.get(precision, torch.bfloat16)
    place = device.partition(":")[0]
    return product_rate(torch.get_num_threads(), SIDES.get(place, 1024), dtype=dtype, device=device)


def multiplies_bfloat16(device: torch.device | str) -> bool:
    """Whether products of bfloat16 matrices are faster than float32's there: any GPU, and a processor with instructions
    for them."""
    if torch.device(device).type != "cpu":
        return True
    able = torch.cpu.get_capabilities()
    return any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
