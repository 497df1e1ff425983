"""States: everything a run needs to go on, in a folder that is there whole or not at all.

    states/step-000100/     after 100 optimizer steps
        model.safetensors       parameters and buffers, each under one name
        optimizer.safetensors   parameter's name:what is remembered of it
        averages.safetensors    where weights are averaged
        state.json              format, step, what the loop counts, and the SHA-256 of each file

It is written under another name, flushed, and renamed last; older ones go only then. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plait.checkpoint.notice import notice
from plait.checkpoint.replacing import whole_folder
from plait.checkpoint.shards import write_tensors

FORMAT = 1
RECORD = "state.json"
FILES = {"model": "model.safetensors", "optimizer": "optimizer.safetensors", "averages": "averages.safetensors"}
_NAME = re.compile(r"step-(\d{6,})")


class StateError(ValueError):
    """A saved state that cannot be read or does not fit; the message says which and why."""


@dataclass(frozen=True, kw_only=True)
class State:
    """A run after ``step`` optimizer steps; ``counts`` is plain data for JSON."""

    step: int
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor] = field(default_factory=dict)
    averages: Mapping[str, Tensor] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)


def save_state(states: Path, state: State, *, keep: int, also: int | None = None) -> Path:
    """Write ``state`` into the folder ``states``; returns its own folder, which is then on the disk.

    Afterwards the newest ``keep`` stay, and that of step ``also``. Raises ``OSError`` where the disk does not take it;
    what was saved before is then as it was.
    """
    target = states / folder_name(state.step)
    old = {path.name for path in target.iterdir()} if target.exists() else set[str]()
    with whole_folder(target, replaces=old) as new:
        sums: dict[str, str] = {}
        for part, name in FILES.items():
            if tensors := getattr(state, part):
                write_tensors(new / name, tensors, {"format": "pt"})
                sums[name] = checksum(new / name)
        record = {"format": FORMAT, "step": state.step, "sha256": sums, "counts": dict(state.counts)}
        (new / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    prune(states, state.step, keep=keep, also=also)
    return target


def prune(states: Path, step: int, *, keep: int, also: int | None = None) -> None:
    """Remove all but the newest ``keep`` states up to ``step``, and that of step ``also``."""
    # Later ones are of runs that came further and could not be read again
    kept = [path for path in saved_states(states) if step_of(path) <= step][:keep]
    for path in saved_states(states):
        if path not in kept and step_of(path) != also:
            _remove(path)


def saved_states(states: Path) -> list[Path]:
    """The folders of states, newest first, whether they are whole or not."""
    if not states.is_dir():
        return []
    return sorted((path for path in states.iterdir() if _NAME.fullmatch(path.name)), key=step_of, reverse=True)


def folder_name(step: int) -> str:
    """The name of a state's folder; names sort by step up to a million of them."""
    return f"step-{step:06}"


def step_of(path: Path) -> int:
    """How many optimizer steps a state's folder says were made."""
    return int(path.name.rpartition("-")[2])


def newest_state(states: Path) -> State | None:
    """The newest state that is whole, and ``None`` where there is none. It says aloud which it is, and which are not
    taken and why; half-written folders of runs that were killed go."""
    found = _newest(states)
    return None if found is None else _read(*found)


def newest_folder(states: Path) -> Path | None:
    """Where the ``newest_state`` is, which is not read yet."""
    found = _newest(states)
    return None if found is None else found[0]


def _newest(states: Path) -> tuple[Path, dict[str, Any]] | None:
    _tidy(states)
    for path in saved_states(states):
        try:
            record = record_of(path)
        except StateError as error:
            notice(f"{error} It is not taken.")
            continue
        notice(f"{path}: going on after step {step_of(path)}.")
        return path, record
    return None


def read_state(path: Path) -> State:
    """The state in a folder. Raises ``StateError`` for what is not whole."""
    return _read(path, record_of(path))


def _read(path: Path, record: Mapping[str, Any]) -> State:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from plait.training.shards import read_shards

    if record.get("sharded"):
        return read_shards(path, record)
    there = {part: name for part, name in FILES.items() if name in record["sha256"]}
    try:
        parts = {part: load_file(path / name) for part, name in there.items()}
    except SafetensorError as error:
        raise StateError(f"{path}: a file of it cannot be read ({error}).") from None
    return State(step=record["step"], counts=record["counts"], **parts)


def record_of(path: Path) -> dict[str, Any]:
    """What state.json says, every file held to its checksum. Raises ``StateError`` for what is not whole."""
    try:
        record = dict(json.loads((path / RECORD).read_text(encoding="utf-8")))
        written, step, sums, _ = (record[key] for key in ("format", "step", "sha256", "counts"))
        files = {name: str(digest) for name, digest in sums.items()}
    except FileNotFoundError:
        raise StateError(f"{path}: this state was never finished, for it has no {RECORD}.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{path}: {RECORD} cannot be read ({error}).") from None
    if written != FORMAT:
        raise StateError(f"{path}: its format is {written!r}, and this plait reads {FORMAT}.")
    if step != step_of(path):
        raise StateError(f"{path}: {RECORD} is of step {step!r}.")
    for name, digest in files.items():
        try:
            if checksum(path / name) != digest:
                raise StateError(f"{path}: {name} is not what was written; its SHA-256 differs.")
        except OSError as error:
            raise StateError(f"{path}: {name} cannot be read ({error}).") from None
    if FILES["model"] not in files and not record.get("sharded"):
        raise StateError(f"{path}: {RECORD} names no {FILES['model']}.")
    return record


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """What a state keeps of a model: parameters and lasting buffers, one of many names for each; not copies."""
    lasting = model.state_dict(keep_vars=True)
    buffers = {name: value for name, value in model.named_buffers() if name in lasting}
    return {**dict(model.named_parameters()), **buffers}


@torch.no_grad()
def fill(own: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy saved values into tensors of the same names. Raises ``StateError`` where names or shapes differ; nothing is
    copied then."""
    if own.keys() != saved.keys():
        name = sorted(own.keys() ^ saved.keys())[0]
        where = "the saved state lacks it" if name in own else "the model has none of that name"
        raise StateError(f"{name}: {where}; resume with the model that was trained.")
    for name, value in saved.items():
        if own[name].shape != value.shape:
            shapes = f"{list(value.shape)} in the saved state and {list(own[name].shape)} in the model"
            raise StateError(f"{name}: its shape is {shapes}.")
    for name, value in saved.items():
        own[name].copy_(value)


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove(path: Path) -> None:
    """Away in one step: what is half removed does not look like a state."""
    aside = path.with_name(f".{path.name}.removed-{secrets.token_hex(4)}")
    os.replace(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def _tidy(states: Path) -> None:
    for path in states.glob(".step-*.*-*"):
        shutil.rmtree(path, ignore_errors=True)
