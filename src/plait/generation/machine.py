"""The machine's limits: how fast it reads memory, and how fast it multiplies matrices. What decoding is held against.

A token at batch 1 reads every weight once and does little with it, so memory sets its pace; a long prompt is products.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

READ = 2**28  # bytes read at a time: more than any cache holds
SIDE = 1024  # rows and columns of the matrices multiplied


class Reading:
    """Memory to read, kept from one measurement to the next; ``bandwidth`` reads it once with each way there is."""

    def __init__(self, size: int = READ) -> None:
        self._floats = torch.ones(size // 4)  # written, so that every page is there

    def bandwidth(self, threads: int, rounds: int = 1) -> float:
        """Bytes a second, the best of ``rounds`` and of two ways to read: a sum, and a product with a vector."""
        width = 4096 if self._floats.numel() % 4096 == 0 else 1
        matrix, vector = self._floats.view(-1, width), torch.ones(width)
        ways: tuple[Callable[[], Tensor], ...] = (self._floats.sum, lambda: torch.mv(matrix, vector))
        with _threads(threads):
            return 4 * self._floats.numel() / min(_seconds(way) for way in ways for _ in range(rounds))


def product_rate(
    threads: int, side: int = SIDE, rounds: int = 3, *, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> float:
    """Floating-point operations a second in a product of square matrices, the best of ``rounds``."""
    a, b = (torch.ones(side, side, dtype=dtype, device=device) for _ in range(2))
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None

    def multiply() -> None:
        torch.mm(a, b)
        wait()

    with _threads(threads):
        multiply()  # the library prepares itself
        return 2 * side**3 / min(_seconds(multiply) for _ in range(rounds))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
