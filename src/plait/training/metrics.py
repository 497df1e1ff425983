"""metrics.jsonl: what a run measured, a line for each thing, appended whole and cut back where a run goes on earlier.

Every line is one JSON object with ``kind`` and ``step``; a reader never meets half a line, whenever the machine stops.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

Kind = Literal["step", "evaluation", "layers", "samples"]


class Metrics:
    """The file, open for appending, and TensorBoard's beside it where that is installed.

    Args:
        path: the file; its folder is there.
        after: the step a resumed run goes on from: lines of later steps, and half a line at the end, are cut off.
            ``None`` for a new run: the file is begun anew.
        tensorboard: a folder for TensorBoard's events; without it, or where it is not installed, there are none.
    """

    def __init__(self, path: Path, *, after: int | None = None, tensorboard: Path | None = None) -> None:
        self.path = path
        if after is None:
            path.unlink(missing_ok=True)
        elif path.exists():
            os.truncate(path, length_up_to(path, after))
        # Unbuffered: one write is one line, and what is written outlives the process.
        self._file = path.open("ab", buffering=0)
        self._board = _board(tensorboard, after) if tensorboard else None

    def write(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Append a line. Numbers that JSON has no word for, NaN and infinities, become null."""
        line = json.dumps({"kind": kind, "step": step, **_finite(values)}, ensure_ascii=False, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        if self._board is not None:
            for name, value in _scalars(values, kind):
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def length_up_to(path: Path, step: int) -> int:
    """Bytes of the whole lines at the file's start that belong to ``step`` or earlier ones."""
    kept = 0
    with path.open("rb") as file:
        for line in file:
            found = _parsed(line)
            if found is None or found["step"] > step:
                break
            kept += len(line)
    return kept


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The file's lines, in order; half a line at its end, which a stopped machine may leave, is left out."""
    with path.open("rb") as file:
        for line in file:
            found = _parsed(line)
            if found is None:
                return
            yield found


def _parsed(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("step"), int) else None


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _scalars(values: Mapping[str, Any], name: str) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{name}/{key}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{name}/{key}", value


def _board(folder: Path, after: int | None) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=None if after is None else after + 1)
