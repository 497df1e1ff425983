"""Torch's threads while tokens are chosen: one. The others would go on spinning for milliseconds after each small sum,
and take the processors from the engine's own team, which the next step wants."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def on_one_thread(work: Callable[P, T]) -> Callable[P, T]:
    """``work``, with torch's number of threads at 1 while it runs, and then what it was."""

    @wraps(work)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return work(*args, **kwargs)
        finally:
            torch.set_num_threads(threads)

    return alone
