"""A Transformer without numbers: the shape of every parameter, no memory, nothing drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from plait.architecture import Architecture

if TYPE_CHECKING:
    from plait.model import Transformer


class _NothingDrawn(TorchFunctionMode):
    """Skips what torch's layers do to fill themselves: on the meta device that has no effect but imports a compiler,
    which takes seconds."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def empty_transformer(architecture: Architecture) -> Transformer:
    """The model on the meta device."""
    from plait.model import Transformer

    with _NothingDrawn(), torch.device("meta"):
        return Transformer(architecture)
