"""Covariance: how a layer's keys are spread over a text, E[k k^T], which says what a change of its values would touch
besides (Meng et al. 2022, eq. 2).

Streamed over a corpus and kept in the user's cache, under a key of the weights, the layer, the corpus and the settings.

Legend: m neurons, n tokens.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.checkpoint.replacing import whole_file
from plait.data.progress import counted
from plait.data.store import cache_folder, tokenised
from plait.inspection.editing.facts import tokenizer_of
from plait.inspection.editing.places import Place
from plait.inspection.errors import InspectionError
from plait.model import watching

ROWS = 8  # that are read at once
RIDGE = 1e-5  # of a neuron's mean square: those that the text never fired would have none


@dataclass(frozen=True, kw_only=True, eq=False)
class Covariance:
    """``matrix`` ``(m, m)`` float64, the mean of k k^T over ``count`` tokens; ``key`` says of what."""

    matrix: Tensor
    count: int
    key: str

    def check(self, key: str) -> None:
        """Raises ``InspectionError`` for statistics of another model, layer, or text."""
        if key != self.key:
            raise InspectionError(
                "covariance: it is of other weights, another layer or another text; gather it anew from the corpus."
            )

    def solve(self, keys: Tensor) -> Tensor:
        """C^-1 of columns, ``(m, k)`` -> the same, float64; a little is on its diagonal, for neurons that never fired.

        Raises ``InspectionError`` where fewer tokens were read than there are neurons.
        """
        if self.count < len(self.matrix):
            raise InspectionError(
                f"covariance: {self.count:,} tokens do not spread over {len(self.matrix):,} neurons, so the matrix "
                "has no inverse; give a longer corpus."
            )
        return torch.linalg.solve(self.ridged.to(keys.device), keys.double())

    @property
    def ridged(self) -> Tensor:
        """The matrix with that on its diagonal."""
        return self.matrix + RIDGE * self.matrix.diagonal().mean() * torch.eye(len(self.matrix), dtype=torch.float64)

    def save(self, path: Path) -> None:
        """Write it, whole."""
        from safetensors.torch import save_file

        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as new:
            save_file({"matrix": self.matrix}, new, metadata={"count": str(self.count), "key": self.key})

    @classmethod
    def load(cls, path: Path) -> Covariance:
        """Read it. Raises ``InspectionError`` for a file that is none."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                said = file.metadata()
                return cls(matrix=file.get_tensor("matrix"), count=int(said["count"]), key=said["key"])
        except (SafetensorError, KeyError, TypeError, ValueError):
            raise InspectionError(f"{path}: this is no covariance that plait wrote; remove it.") from None


def covariance(
    checkpoint: Checkpoint,
    place: Place,
    corpus: str | Path | list[str],
    *,
    tokens: int = 100_000,
    length: int = 256,
    cache: Path | None = None,
) -> Covariance:
    """That of a layer's keys, gathered now or read from the cache.

    Args:
        place: see ``place``.
        corpus: files or folders of text.
        tokens: how many are read, at most; ``length`` in a row.
        cache: a folder, instead of the user's.

    Raises ``InspectionError`` and ``DataError`` for a corpus in which there is nothing to read.
    """
    text = tokenised(corpus, tokenizer_of(checkpoint))
    length = min(length, checkpoint.architecture.max_length or length)
    count = min(tokens, len(text)) // length * length or len(text)
    read = hashlib.sha256(text.read(0, count).tobytes()).hexdigest()
    key = key_of(checkpoint, place, read, length)
    kept = (cache or cache_folder().parent / "covariance") / f"{key[:40]}.safetensors"
    if kept.exists():
        found = Covariance.load(kept)
        found.check(key)
        return found
    model, matrix = checkpoint.model.eval(), None
    device = next(model.parameters()).device
    with counted(f"covariance of layer {place.layer}", count) as advance, torch.no_grad():
        for start in range(0, count, ROWS * length):
            ids = torch.from_numpy(text.read(start, min(start + ROWS * length, count))).to(device)
            with watching(model, place.key, stop_after=place.key) as seen:
                model(ids.view(-1, min(length, len(ids))))
            keys = seen[place.key].flatten(0, -2).double()
            matrix = keys.t() @ keys if matrix is None else matrix.addmm_(keys.t(), keys)
            advance(len(keys))
    assert matrix is not None, "there is a token"
    found = Covariance(matrix=matrix / count, count=count, key=key)
    found.save(kept)
    return found


def key_of(checkpoint: Checkpoint, place: Place, read: str, length: int) -> str:
    """What decides a covariance: all weights, the layer, the tokens and how they stand in rows."""
    parts: list[Any] = [checkpoint.weights().identity(), place.key, read, length]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
