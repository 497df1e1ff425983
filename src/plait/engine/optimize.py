"""Optimize: from a checkpoint to an engine that runs it, on kernels where there are some."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Mapping

import torch

from plait.checkpoint import Checkpoint, CheckpointError
from plait.checkpoint.loading import as_device
from plait.checkpoint.notice import notice
from plait.checkpoint.quantise import QUANTIZATIONS, block_types
from plait.checkpoint.weights import Weights
from plait.engine import kernels, store
from plait.engine.arena import gathered
from plait.engine.batched import TokenPages
from plait.engine.device_path import DevicePath, Graphs, Work
from plait.engine.lower import lower
from plait.engine.packed import unpack
from plait.engine.pages import CPU, Pages
from plait.engine.program import Program, whole
from plait.engine.runner import EngineRunner
from plait.engine.torch_path import TorchPath
from plait.engine.towers import Executor
from plait.engine.weights import DenseWeights, Formats, PackedWeights, matrices
from plait.words import nearest

MOST_THREADS = 1024
_made = itertools.count()
DTYPES = ("stored", "float32", "bfloat16", "float64")


def optimize(
    checkpoint: Checkpoint,
    *,
    dtype: str | torch.dtype = "stored",
    quantization: str | None = None,
    cache_dtype: str | torch.dtype = "float32",
    threads: int | None = None,
    device: str | torch.device = "cpu",
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
        device: ``"cpu"``, or ``"cuda"`` and ``"cuda:1"``, where torch computes. There ``"stored"`` keeps bfloat16 and
            float32 matrices as they are and a file's blocks as bfloat16; a product is made in its matrix's type, all
            else in float32. Logits come back on the device. It takes neither ``quantization`` nor ``threads``.

    Raises ``CheckpointError`` for words that are none of these, and for a device that is not there.
    """
    wanted, cached = _type("dtype", dtype, DTYPES), _type("cache_dtype", cache_dtype, _CACHED)
    place = as_device(device)
    if place.type != "cpu":
        return on_device(checkpoint, _graphics(place, quantization, threads), dtype=wanted, cache_dtype=cached)
    if quantization is not None and wanted not in ("stored", "float32"):
        raise CheckpointError(f"quantization: {quantization!r} and dtype {wanted!r} exclude each other; give one.")
    if threads is not None:
        check_threads(threads)
    weights = checkpoint.weights()
    formats = Formats(weights, wanted, block_types(checkpoint.architecture, quantization) if quantization else None)
    if quantization is not None and (twice := next(filter(None, map(weights.blocks, formats.rounded)), None)):
        raise CheckpointError(
            f"quantization: the weights are in blocks of {twice.type} already, and rounding twice loses more; leave it "
            "out."
        )
    programs = lower(checkpoint.model, formats)
    identity = weights.identity()
    computes: dict[str, object] = {"kernels": "torch", "threads": torch.get_num_threads()}
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
        computes = {"kernels": kernels.backend(), "threads": team.threads}
        executors = {name: (program, Compiled(program, held, team)) for name, program in programs.items()}
        size = held.nbytes
    return _runner(
        checkpoint,
        executors,
        f"{identity} {wanted} {quantization}",
        size,
        dtype=wanted,
        cache_dtype=cached,
        made={"dtype": wanted, "quantization": quantization, "cache_dtype": cached, **computes},
    )


def on_device(
    checkpoint: Checkpoint,
    device: torch.device,
    *,
    dtype: str = "stored",
    cache_dtype: str = "float32",
    capture: Callable[[Work], Work] | None = None,
) -> EngineRunner:
    """An engine of torch alone on any device: what ``optimize`` makes for a GPU, and tests on a CPU as well.

    ``capture``: see ``DevicePath``; unless given it is CUDA's graphs on a GPU, and elsewhere the work itself.
    """
    weights = checkpoint.weights()
    formats = Formats(weights, dtype, None)
    programs = lower(checkpoint.model, formats)
    types: dict[str, torch.dtype] = {}
    if dtype != "float64":
        names = {name for stack in matrices(programs.values()) for name in stack}
        types = {whole(name)[0]: torch.float32 if formats(name) == "F32" else torch.bfloat16 for name in names}
    held = DenseWeights(weights.read, _computed(dtype), device, types)
    held.read_now(programs.values())
    if capture is None:
        capture = Graphs(device) if device.type == "cuda" else _as_it_is
    executors = {
        name: (program, DevicePath(program, held, device, _computed(dtype), capture))
        for name, program in programs.items()
    }
    return _runner(
        checkpoint,
        executors,
        f"{weights.identity()} {dtype} {device}",
        held.nbytes,
        dtype=dtype,
        cache_dtype=cache_dtype,
        device=device,
        pages=TokenPages,
        made={"dtype": dtype, "cache_dtype": cache_dtype, "device": str(device)},
    )


def _as_it_is(work: Work) -> Work:
    return work


def _graphics(device: torch.device, quantization: str | None, threads: int | None) -> torch.device:
    """The device, if torch computes there for the engine and nothing is asked that it would not do."""
    if device.type != "cuda":
        raise CheckpointError(f"device: the engine computes on 'cpu' and 'cuda', not on {str(device)!r}.")
    if quantization is not None:
        raise CheckpointError(
            f"quantization: on {str(device)!r} rounded weights would be held in bfloat16, no smaller and no faster "
            "than unrounded ones; leave it out."
        )
    if threads is not None:
        raise CheckpointError(f"threads: they are of the CPU's kernels, and {str(device)!r} has none; leave it out.")
    return device


def _runner(
    checkpoint: Checkpoint,
    executors: Mapping[str, tuple[Program, Executor]],
    identity: str,
    size: int,
    *,
    dtype: str,
    cache_dtype: str,
    made: Mapping[str, object],
    device: torch.device = CPU,
    pages: type[Pages] = Pages,
) -> EngineRunner:
    return EngineRunner(
        checkpoint.architecture,
        executors,
        f"{identity} {next(_made)}",  # another engine has other pages, even of the same weights
        weight_bytes=size,
        dtype=_computed(dtype),
        cache_dtype=_CACHED[cache_dtype],
        device=device,
        pages=pages,
        made=made,
    )


_CACHED = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def _computed(dtype: str) -> torch.dtype:
    return torch.float64 if dtype == "float64" else torch.float32


def _dense(
    programs: Collection[Program], weights: Weights, formats: Formats, dtype: str, *, rounds: bool
) -> DenseWeights:
    """What the torch path computes with: the numbers that kernels would, dequantised."""
    packed: dict[str, list[str]] = {}  # parameter -> its matrices: itself, or one for each expert
    for name in (name for names in matrices(programs) for name in names) if rounds or dtype == "bfloat16" else ():
        packed.setdefault(whole(name)[0], []).append(name)

    def read(name: str, computed: torch.dtype) -> torch.Tensor:
        if name not in packed:
            return weights.read(name, computed)
        parts = [unpack(formats.pack((part,))).to(computed) for part in packed[name]]
        return parts[0] if packed[name] == [name] else torch.stack(parts)

    dense = DenseWeights(read, _computed(dtype))
    dense.read_now(programs)
    return dense


def check_threads(threads: int) -> int:
    """The number itself; ``CheckpointError`` where it makes no sense, a notice where processors are by far fewer."""
    if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
        raise CheckpointError(f"threads: {threads!r} makes no sense; give a whole number from 1 to {MOST_THREADS}.")
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads > 2 * processors:
        notice(f"threads: {threads} on {processors} processors wait for each other; fewer are faster.")
    return threads


def _type(field: str, dtype: str | torch.dtype, known: Collection[str]) -> str:
    word = str(dtype).removeprefix("torch.")
    if word not in known:
        near = nearest(word, known)
        if field == "dtype" and word in QUANTIZATIONS:
            raise CheckpointError(f"dtype: {word!r} is a way to round weights; give quantization={word!r} instead.")
        advice = f"; did you mean {near!r}?" if near else "."
        raise CheckpointError(f"{field}: {word!r} is not one of {', '.join(map(repr, known))}{advice}")
    return word
