"""Load: from a folder, a file, a hub name or a preset to a Checkpoint, the weights mapped and not copied."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.checkpoint.dequantise import BLOCK_FORMATS
from plait.checkpoint.gguf import GGUFSource
from plait.checkpoint.notice import CheckpointError, notice
from plait.checkpoint.opening import Found, describe, open_checkpoint
from plait.checkpoint.pooling import read_sentence_folder
from plait.checkpoint.record import Checkpoint, Layout
from plait.checkpoint.sinusoids import check_sinusoids
from plait.checkpoint.source import FLOATS, PLAIN_TYPES, TensorSource
from plait.families import Family, Wrapped
from plait.model import Transformer, initialize
from plait.parameters import parameters

# Products over weights that lie unaligned in their file take some hundredths longer, and sum in another order: a small
# model's are copied, a large one's stay mapped.
ALIGNMENT, MAPPED_FROM = 64, 100_000_000  # bytes, parameters
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def load(
    source: str | os.PathLike[str] | Architecture,
    *,
    dtype: str | torch.dtype = "stored",
    device: str | torch.device = "cpu",
    revision: str | None = None,
    random: bool | str = False,
    seed: int = 0,
    offline: bool = False,
    pickle: bool = False,
    lazy: bool = False,
    adapter: str | os.PathLike[str] | None = None,
) -> Checkpoint:
    """Read a checkpoint. Nothing in it is run, whatever its files ask for.

    Args:
        source: a folder, a ``.safetensors`` or ``.gguf`` file, a hub name ``"org/name"`` (or ``"org/name/file.gguf"``),
            or ``"package:NAME"``, the checkpoint inside an installed package; with ``random``, also a preset's name or
            an ``Architecture``.
        dtype: ``"stored"`` keeps the type of the file, except that quantised weights become float32, float16 does on a
            CPU, and of mixed types the widest is taken (said by a ``PlaitNotice``; ``save`` writes each tensor as it
            was stored); or one type for all, ``"float32"``, ``"bfloat16"``, ``"float16"``, ``"float64"``, or torch's.
        device: where the model goes; on ``"meta"`` no tensor is read, which is quick where only the rest is wanted:
            weights are then not fetched either, and where there are none beside it a config.json is believed.
        revision: a branch, tag or commit of a hub name.
        random: fill the architecture with random weights instead of stored ones; a string is the scheme of
            ``initialize``. ``seed`` decides the numbers.
        offline: use only what was fetched from the hub before.
        pickle: read ``.bin`` files; tensors alone are taken from them.
        lazy: leave the model on the meta device, its weights in their files, fetched but not read: ``plait.optimize``
            takes them from there, in the form they are stored in.
        adapter: a folder in PEFT's format, whose updates are added to the weights; see ``merge``. A ``dtype`` that is
            asked for by name may take more of them by its rounding than a stored one may.

    Raises ``CheckpointError``, or the ``ValueError`` of the part that refuses (``FamilyError``, ``ArchitectureError``,
    ``TokenizerError``), before anything is computed.
    """
    wanted, place = as_dtype(dtype), as_device(device)
    if adapter is not None:
        if lazy or random or place.type == "meta":
            raise CheckpointError("adapter: it is added to stored weights in memory; leave out lazy, random and meta.")
        read = load(source, dtype=dtype, device=device, revision=revision, offline=offline, pickle=pickle)
        return _adapted(read, adapter, lossy=wanted is not None)
    if lazy and random:
        raise CheckpointError("lazy: random weights are in no file that they could stay in; leave out one of the two.")
    if isinstance(source, Architecture):
        _check_random(random, "an Architecture")
        return _drawn(source, random, seed, wanted, place)
    bare = place.type == "meta"
    path = locate(source, revision=revision, random=bool(random), offline=offline, pickle=pickle, weights=not bare)
    if isinstance(path, Architecture):
        return _drawn(path, random, seed, wanted, place)
    if random:
        return _drawn_as_folder(path, random, seed, wanted, place)
    found = open_checkpoint(path, pickle=pickle, weights=not bare)
    if unread := found.family.unread(found.config):
        notice(f"{path}: these settings are not known to plait and were not used: {', '.join(unread)}.")
    weights = found.source
    if weights is None:
        return _unfilled(found)
    names, equal = weights.names, _comparer(weights)
    architecture = found.family.architecture(found.config, names, equal)
    binding = found.family.bind(architecture, names, equal)
    if isinstance(found.family, Family) and not bare:
        check_sinusoids(architecture, weights, found.family.stored_sinusoids(names))
    if isinstance(found.family, Wrapped):
        notice(f"{path}: {found.family.said(found.config, len(binding.layout.leftovers))}")
    routers = {name: binding.stored(name) for name in parameters(architecture) if ".ffn.router." in name}
    rule = _type_rule(weights, wanted, place, path, routers)
    model, types = build(architecture, binding, weights, rule, torch.device("meta") if lazy else place, path)
    layout = Layout(
        family=found.family.name,
        gguf=found.is_gguf,
        binding=binding.layout,
        bound=binding,
        source=weights,
        types=types,
        keeps_types=wanted is None and not found.is_gguf,
        keeps_blocks=wanted is None,
        config=found.config,
        generation_config=found.generation,
        rules=found.rules,
        sentence=found.sentence,
    )
    return Checkpoint(
        architecture=architecture,
        model=model,
        tokenizer=found.tokenizer,
        rules=found.rules,
        layout=layout,
        pooling=found.pooling,
    )


def _adapted(checkpoint: Checkpoint, folder: str | os.PathLike[str], *, lossy: bool) -> Checkpoint:
    from plait.checkpoint.adapter import merge
    from plait.checkpoint.peft import read_adapter

    merge(checkpoint, read_adapter(folder, checkpoint), lossy=lossy)
    return checkpoint


def as_dtype(dtype: str | torch.dtype) -> torch.dtype | None:
    """``None`` for "stored"; ``CheckpointError`` for what is not one of ``DTYPES``."""
    if dtype == "stored":
        return None
    found = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if found is None or found not in DTYPES.values():
        raise CheckpointError(f"dtype: {dtype!r} is not one of 'stored', {', '.join(map(repr, DTYPES))}.")
    return found


def as_device(device: str | torch.device) -> torch.device:
    """A device that can hold a tensor here; ``CheckpointError`` naming those that can where it cannot."""
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError):  # no such word, or not there; not built in
        graphics = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        there = ["cpu", *graphics, *(["mps"] if torch.backends.mps.is_available() else []), "meta"]
        raise CheckpointError(f"device: {str(device)!r} is not one of those here, {', '.join(there)}.") from None
    return place


def locate(
    source: str | os.PathLike[str],
    *,
    revision: str | None,
    random: bool,
    offline: bool,
    pickle: bool,
    weights: bool = True,
) -> Path | Architecture:
    """The folder or file that ``source`` names, fetched if need be; with ``random``, also a preset's architecture."""
    from plait.checkpoint.hub import fetch, is_hub_name
    from plait.checkpoint.package import PREFIX, inside_package
    from plait.presets import PRESETS, preset

    text, path = os.fspath(source), Path(source).expanduser()
    if not text:
        raise CheckpointError("source: the name is empty; give a folder, a file or a hub name ('.' is here).")
    if isinstance(source, str) and text.startswith(PREFIX):
        if revision is not None:
            raise CheckpointError(
                f"revision: it belongs to hub names, and {text!r} is an installed package; leave it out."
            )
        return inside_package(text.removeprefix(PREFIX))
    if path.exists():
        if revision is not None:
            advice = f"; write 'hub:{text}' to mean the hub's" if is_hub_name(text) else ""
            raise CheckpointError(f"revision: it belongs to hub names, but {text!r} is a path here{advice}.")
        return path
    if text in PRESETS and isinstance(source, str):
        _check_random(random, f"the preset {text!r}")
        return preset(text)
    if isinstance(source, str) and is_hub_name(text):
        return fetch(text, revision=revision, offline=offline, pickle=pickle, weights=weights and not random)
    raise CheckpointError(
        f"{text}: there is no such file or folder, and it is neither a hub name ('org/name'), 'package:NAME' "
        "nor a preset."
    )


def _check_random(random: bool | str, what: str) -> None:
    if not random:
        raise CheckpointError(f"random: {what} has no weights; say random=True to draw them.")


def _comparer(source: TensorSource) -> Callable[[str, str], bool]:
    """Whether two stored tensors are the same, byte for byte."""

    def equal(first: str, second: str) -> bool:
        if source.shape(first) != source.shape(second) or source.stored_type(first) != source.stored_type(second):
            return False
        a, b = (torch.frombuffer(source.raw(name), dtype=torch.uint8) for name in (first, second))
        return torch.equal(a, b)

    return equal


TypeRule = Callable[[str, torch.dtype], torch.dtype]  # of a parameter's name, and the type it is stored in


def _type_rule(
    source: TensorSource, wanted: torch.dtype | None, device: torch.device, path: Path, routers: Mapping[str, str]
) -> TypeRule:
    """Stored type -> the type to compute in; what is not kept is said aloud, once.

    ``routers``, parameter -> stored tensor, are computed in float32 at least, and so may be stored apart from the rest.
    """
    if wanted is not None:
        return lambda name, stored: wanted
    kinds = {source.stored_type(name) for name in set(source.names) - set(routers.values())}
    mixed_gguf = isinstance(source, GGUFSource) and len(kinds) > 1  # its norms are float32 whatever the rest is
    if mixed_gguf or kinds & BLOCK_FORMATS.keys():
        return lambda name, stored: torch.float32
    floats = {PLAIN_TYPES[kind] for kind in kinds & FLOATS}
    widest = functools.reduce(torch.promote_types, floats, min(floats, key=str, default=torch.float32))
    if "F8_E4M3" in kinds:
        notice(f"{path}: partly stored in float8; loaded as {str(widest).removeprefix('torch.')}.")
    if widest == torch.float16 and device.type == "cpu":
        notice(f"{path}: stored in float16, which a CPU computes slowly; loaded as float32 (dtype='float16' keeps it).")
        return lambda name, stored: torch.float32
    if len(floats) > 1:  # a product takes one type
        names = " and ".join(sorted(str(kind).removeprefix("torch.") for kind in floats))
        notice(f"{path}: stored in {names}; loaded as {str(widest).removeprefix('torch.')}.")
    return lambda name, stored: stored if name in routers and stored == torch.float32 else widest


def build(
    architecture: Architecture,
    binding: Any,
    source: TensorSource,
    rule: TypeRule,
    device: torch.device,
    path: Path,
) -> tuple[Transformer, dict[str, tuple[torch.dtype, torch.dtype]]]:
    """A model on the meta device takes the mapped tensors as its parameters."""
    with torch.device("meta"):
        model = Transformer(architecture)
    if device.type == "meta":
        return model.eval(), {}
    expected = {name: tuple(parameter.shape) for name, parameter in model.state_dict().items()}
    state: dict[str, Tensor] = {}
    types: dict[str, tuple[torch.dtype, torch.dtype]] = {}
    taken: set[tuple[int, int]] = set()
    small = sum(math.prod(shape) for shape in expected.values()) < MAPPED_FROM
    for name, shape in expected.items():
        value = binding.read(name, source.read)
        if tuple(value.shape) != shape:
            raise CheckpointError(
                f"{path}: {name} should have shape {shape} by the config, and is stored with {tuple(value.shape)}."
            )
        if not value.is_floating_point():
            raise CheckpointError(f"{path}: {name} is stored as {value.dtype}; weights are floating-point numbers.")
        kind = rule(name, value.dtype)
        types[name] = (kind, value.dtype)
        value = value.to(device=device, dtype=kind).contiguous()
        span = (value.data_ptr(), value.numel())
        shared = span in taken and value.numel()  # stored once for two parameters: each gets its own
        if shared or (small and value.data_ptr() % ALIGNMENT):
            value = value.clone()
        taken.add(span)
        state[name] = value
    model.load_state_dict(state, assign=True)
    return model.eval(), types


def _drawn(
    architecture: Architecture, random: bool | str, seed: int, dtype: torch.dtype | None, device: torch.device
) -> Checkpoint:
    """Random weights."""
    with torch.device("meta"):
        model = Transformer(architecture)
    model.to_empty(device=device)
    scheme: Any = random if isinstance(random, str) else "gpt2"
    initialize(model, scheme, seed=seed)
    return Checkpoint(architecture=architecture, model=model.to(dtype or torch.float32).eval())


def _drawn_as_folder(
    path: Path, random: bool | str, seed: int, dtype: torch.dtype | None, device: torch.device
) -> Checkpoint:
    """Random weights for a folder's config.json, with the tokenizer and rules that lie beside it."""
    folder = path if path.is_dir() else path.parent
    sentence = read_sentence_folder(folder) if path.is_dir() else None
    found = describe(folder / sentence.inner if sentence else folder, sentence=sentence)
    return _beside(found, _drawn(found.family.architecture(found.config, None, None), random, seed, dtype, device))


def _unfilled(found: Found) -> Checkpoint:
    """A model on the meta device, as a config.json without weights describes it."""
    architecture = found.family.architecture(found.config, None, None)
    with torch.device("meta"):
        model = Transformer(architecture)
    return _beside(found, Checkpoint(architecture=architecture, model=model.eval()))


def _beside(found: Found, checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint whose weights come from no file, with what lies beside the config."""
    layout = Layout(
        family=found.family.name,
        config=found.config,
        generation_config=found.generation,
        rules=found.rules,
        sentence=found.sentence,
    )
    return dataclasses.replace(
        checkpoint, tokenizer=found.tokenizer, rules=found.rules, layout=layout, pooling=found.pooling
    )
