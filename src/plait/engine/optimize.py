"""Optimize: from a checkpoint to an engine that runs it."""

from __future__ import annotations

import torch

from plait.checkpoint import Checkpoint
from plait.engine.lower import lower
from plait.engine.runner import EngineRunner
from plait.engine.torch_path import TorchPath
from plait.engine.weights import DenseWeights


def optimize(checkpoint: Checkpoint, *, dtype: torch.dtype = torch.float32) -> EngineRunner:
    """The engine for a checkpoint, whose model may be on the meta device."""
    weights = checkpoint.weights()
    dense = DenseWeights(weights.read, dtype)
    executors = {name: (program, TorchPath(program, dense)) for name, program in lower(checkpoint.model).items()}
    a = checkpoint.architecture
    rows = {"decoder": a.vocab_size, "encoder": a.source_vocab_size}
    return EngineRunner(a, executors, rows.__getitem__, weights.identity(), dtype=dtype)
