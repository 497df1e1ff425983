"""Keeping: what trials found, one small file each, so that a run that was broken off goes on where it was.

The folder is ``lab`` in the user's cache (see ``plait.data.store``), and in it one for this very code on this torch:
what other code found is not taken for its own. Once everything is done the files go, and the next run measures anew.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch

import plait.model
from plait.checkpoint.replacing import whole_file
from plait.data.store import cache_folder


class Kept:
    """What was found, by experiment and trial; ``folder`` instead of the user's cache."""

    def __init__(self, folder: Path | None = None) -> None:
        self._all = folder or cache_folder().parent / "lab"
        self.folder = self._all / identity()

    def load(self, experiment: str, trial: str) -> Any:
        """What a trial found; ``None`` where it was not made, or its file is not whole."""
        try:
            return json.loads(self._path(experiment, trial).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def store(self, experiment: str, trial: str, found: Any) -> None:
        """Keep plain data, whole or not at all."""
        with whole_file(self._path(experiment, trial)) as new:
            new.write_text(json.dumps(found), encoding="utf-8")

    def forget(self, experiments: Iterable[str]) -> None:
        """Let go of what these found, and of all that other code did."""
        for name in experiments:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for other in self._all.iterdir() if self._all.is_dir() else ():
            if other != self.folder or not any(other.iterdir()):
                shutil.rmtree(other, ignore_errors=True)

    def _path(self, experiment: str, trial: str) -> Path:
        return self.folder / experiment / f"{trial}.json"


@cache
def identity() -> str:
    """A digest of plait's own source and torch's version."""
    source = Path(plait.model.__path__[0]).parent
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(source.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
