"""Breakdown: where numbers stopped being numbers, found by computing a step that failed once more and watching it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def broken(tensors: Mapping[str, Tensor]) -> str | None:
    """The first tensor that holds a NaN or an infinity."""
    return next((name for name, value in tensors.items() if not torch.isfinite(value).all()), None)


@contextmanager
def first_broken_output(model: nn.Module) -> Iterator[list[str]]:
    """The list gets the name of the first part whose output in this block, in the order of computing, holds one."""
    found: list[str] = []

    def look(name: str) -> Any:
        def hook(part: nn.Module, inputs: Any, output: Any) -> None:
            if not found and any(not torch.isfinite(value).all() for value in _floats(output)):
                found.append(name)

        return hook

    hooks = [part.register_forward_hook(look(name)) for name, part in model.named_modules() if name]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def explain(model: nn.Module, passes: Iterable[Any], gradients: Mapping[str, Tensor]) -> str:
    """One clause: which tensor broke first. ``passes`` computes the step's losses again, one by one, as it is read;
    ``gradients`` are those of the parameters, in the model's order."""
    if name := broken(dict(model.named_parameters())):
        return f"the weights of {name} are not finite"
    with first_broken_output(model) as found:
        for _ in passes:  # all of them: other processes, which wait for this one, may find nothing
            pass
    if found:
        return f"{found[0]} was the first to give a value that is not finite"
    last_first = dict(reversed(list(gradients.items())))  # backward goes from the loss to the input
    if name := broken(last_first):
        return f"every value was finite, and the gradient of {name} was the first that is not"
    return "every value and gradient was finite"


def _floats(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, tuple | list):
        for item in output:
            yield from _floats(item)
