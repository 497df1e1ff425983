"""Shards: a run's state written by many processes at once, each its own part, and read by any number of them.

    states/step-000100/
        .metadata  __0_0.distcp  __1_0.distcp  ...    torch.distributed.checkpoint's own files
        state.json                                    format, step, what the loop counts, and each file's SHA-256

It is there whole or not at all, as states.py has it: written under another name, flushed, and renamed last.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plait.training.states import FORMAT, RECORD, State, checksum

PARTS = ("model", "optimizer", "averages")

# (part/key, shape, type) -> a tensor to be read into: whole, or this process's part of it
Empty = Callable[[str, tuple[int, ...], torch.dtype], Tensor]


def write_shards(folder: Path, state: State) -> None:
    """Each process writes its part of the state's tensors; all must call it, with the same folder."""
    from torch.distributed.checkpoint.state_dict_saver import save

    tensors = {f"{part}/{key}": value for part in PARTS for key, value in getattr(state, part).items()}
    with _quiet():
        save(tensors, checkpoint_id=str(folder))


def write_record(folder: Path, state: State) -> None:
    """One process writes what the rest is, once all have written."""
    sums = {path.name: checksum(path) for path in sorted(folder.iterdir())}
    record = {"format": FORMAT, "step": state.step, "sha256": sums, "counts": dict(state.counts), "sharded": True}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def read_shards(folder: Path, record: Mapping[str, Any], empty: Empty | None = None) -> State:
    """The state in a folder whose ``record`` was checked, read by all processes together, each into the tensors that
    ``empty`` gives; without it by one process, whole."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = FileSystemReader(str(folder))
    known: Any = reader.read_metadata().state_dict_metadata
    make = empty or (lambda key, shape, dtype: torch.empty(shape, dtype=dtype))
    tensors = {key: make(key, tuple(found.size), found.properties.dtype) for key, found in known.items()}
    with _quiet():
        load(tensors, storage_reader=reader, no_dist=empty is None)
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
    for key, value in tensors.items():
        part, _, name = key.partition("/")
        parts[part][name] = value
    return State(step=record["step"], counts=record["counts"], **parts)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its own deprecations and about being alone
        yield
