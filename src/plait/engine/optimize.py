"""Optimize: from a checkpoint to an engine that runs it, on kernels where there are some."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import torch

from plait.checkpoint import Checkpoint, CheckpointError
from plait.checkpoint.quantise import block_types
from plait.checkpoint.weights import Weights
from plait.engine import kernels, store
from plait.engine.arena import gathered
from plait.engine.lower import lower
from plait.engine.packed import unpack
from plait.engine.program import Program
from plait.engine.runner import EngineRunner
from plait.engine.torch_path import TorchPath
from plait.engine.towers import Executor
from plait.engine.weights import DenseWeights, Formats, PackedWeights, matrices
from plait.words import nearest

MOST_THREADS = 1024
_made = itertools.count()
DTYPES = {
    "stored": torch.float32,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}


def optimize(
    checkpoint: Checkpoint,
    *,
    dtype: str | torch.dtype = "stored",
    quantization: str | None = None,
    cache_dtype: str | torch.dtype = "float32",
    threads: int | None = None,
) -> EngineRunner:
    """An engine for a checkpoint: its weights as they are now, packed, and a program to run them.

    Args:
        checkpoint: any that ``load`` gives. A model on the meta device is enough: weights are then read from the files,
            and blocks of quantised files are taken as they are.
        dtype: ``"stored"`` keeps the weights' type (bfloat16, float32, a file's blocks; others become float32); or
            ``"float32"``, ``"bfloat16"``. Sums and activations are float32 in any case. ``"float64"`` computes in
            float64, with torch alone.
        quantization: round float weights to ``"int8"``, ``"int4"`` (symmetric) or ``"int4_min"`` (with a minimum), in
            groups of 32.
        cache_dtype: of keys and values, ``"float32"`` or ``"bfloat16"``.
        threads: of the kernels; torch's own number unless given.

    Raises ``CheckpointError`` for words that are none of these.
    """
    wanted, cached = _type("dtype", dtype, DTYPES), _type("cache_dtype", cache_dtype, _CACHED)
    if quantization is not None and wanted not in ("stored", "float32"):
        raise CheckpointError(f"quantization: {quantization!r} and dtype {wanted!r} exclude each other; give one.")
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MOST_THREADS):
        raise CheckpointError(f"threads: {threads!r} makes no sense; give a whole number from 1 to {MOST_THREADS}.")
    weights = checkpoint.weights()
    formats = Formats(weights, wanted, block_types(checkpoint.architecture, quantization) if quantization else None)
    if quantization is not None and (twice := next(filter(None, map(weights.blocks, formats.rounded)), None)):
        raise CheckpointError(
            f"quantization: the weights are in blocks of {twice.type} already, and rounding twice loses more; leave it "
            "out."
        )
    programs = lower(checkpoint.model, formats)
    identity = weights.identity()
    if wanted == "float64" or not kernels.available():
        dense = _dense(programs.values(), weights, formats, wanted, rounds=quantization is not None)
        executors: dict[str, tuple[Program, Executor]] = {
            name: (program, TorchPath(program, dense)) for name, program in programs.items()
        }
        size = dense.nbytes
    else:
        from plait.engine.compiled import Compiled

        names = matrices(programs.values())
        if weights.in_files:
            parts = {"weights": identity, "dtype": wanted, "quantization": quantization or ""}
            packed = store.kept(parts, names, formats.pack)
        else:
            packed = gathered({name: formats.pack(name) for name in names})
        held = PackedWeights(weights.read, packed)
        team = kernels.Team(threads or torch.get_num_threads())
        executors = {name: (program, Compiled(program, held, team)) for name, program in programs.items()}
        size = held.nbytes
    a = checkpoint.architecture
    rows = {"decoder": a.vocab_size, "encoder": a.source_vocab_size}
    return EngineRunner(
        a,
        executors,
        rows.__getitem__,
        f"{identity} {wanted} {quantization} {next(_made)}",  # another engine has other pages, even of the same weights
        weight_bytes=size,
        dtype=_computed(wanted),
        cache_dtype=_CACHED[cached],
    )


_CACHED = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def _computed(dtype: str) -> torch.dtype:
    return torch.float64 if dtype == "float64" else torch.float32


def _dense(
    programs: Collection[Program], weights: Weights, formats: Formats, dtype: str, *, rounds: bool
) -> DenseWeights:
    """What the torch path computes with: the numbers that kernels would, dequantised."""
    packed = {name for names in matrices(programs) for name in names} if rounds or dtype == "bfloat16" else ()

    def read(name: str, computed: torch.dtype) -> torch.Tensor:
        return unpack(formats.pack((name,))).to(computed) if name in packed else weights.read(name, computed)

    dense = DenseWeights(read, _computed(dtype))
    for name in {name for program in programs for operation in program.operations for name in operation.weights}:
        dense.dense(name)  # now: the engine is of the weights as they are
    return dense


def _type(field: str, dtype: str | torch.dtype, known: dict[str, torch.dtype]) -> str:
    word = str(dtype).removeprefix("torch.")
    if word not in known:
        near = nearest(word, known)
        advice = f"; did you mean {near!r}?" if near else "."
        raise CheckpointError(f"{field}: {word!r} is not one of {', '.join(map(repr, known))}{advice}")
    return word
