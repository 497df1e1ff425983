"""Processes: those that torchrun started for one run; how this one joins them, and what only the first of them does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist


class ParallelError(ValueError):
    """A model or a run that cannot be spread over processes so; the message names the part."""


def own_device() -> torch.device:
    """What this process computes on: a GPU where there is one, else the processor."""
    there = torch.cuda.is_available()
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if there else torch.device("cpu")


def join() -> torch.device:
    """Become one of the processes that torchrun started, if it did; the device that this one computes on."""
    device = own_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return device
    if lost := [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        raise ParallelError(f"{lost[0]}: WORLD_SIZE is set and this is not; start the processes with torchrun.")
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the process that speaks and writes for all."""
    return not dist.is_initialized() or dist.get_rank() == 0


def by_first(work: Callable[[], Any]) -> Any:
    """What the first process makes of it, told to all; a mistake or a fault of the disk is one for all."""
    if not dist.is_initialized():
        return work()
    said: list[Any] = [None, None]
    if is_first():
        try:
            said[0] = work()
        except (OSError, ValueError) as error:
            said[1] = error
    dist.broadcast_object_list(said, 0)
    if said[1] is not None:
        raise said[1]
    return said[0]


@contextmanager
def first_before_others() -> Iterator[None]:
    """The block is run by the first process, and then by the others: what it leaves in a cache is there for them."""
    if not is_first():
        dist.barrier()
    try:
        yield
    finally:
        if is_first() and dist.is_initialized():
            dist.barrier()
