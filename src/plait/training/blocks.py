"""Blocks: the layers of a model computed twice to save memory, or compiled, from outside; no name changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from plait.model import Transformer
from plait.model.block import Block


def recompute(model: Transformer) -> None:
    """Keep of every layer what it reads alone, and compute the rest once more for the backward pass (Chen et al. 2016):
    with the same noise, so that gradients are the same."""
    for block in _blocks(model):
        block.forward = _Twice(block)


def compile_layers(model: Transformer) -> None:
    """Compile every layer by itself: one is like another, so that there is one thing to compile, and what is watched
    between them stays visible."""
    for block in _blocks(model):
        block.compile()


class _Twice:
    def __init__(self, block: Block) -> None:
        self.once = type(block).forward.__get__(block)
        self.block = block

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self.block.training and torch.is_grad_enabled():
            return checkpoint(self.once, *args, use_reentrant=False, **named)
        return self.once(*args, **named)


def _blocks(model: nn.Module) -> Iterator[Block]:
    return (module for module in model.modules() if isinstance(module, Block))
