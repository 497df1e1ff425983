"""Blocks: a matrix as a file holds it when it is quantised, a row of bytes for each row of weights."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from plait.checkpoint.dequantise import BLOCK_FORMATS, dequantise


@dataclass(frozen=True)
class Blocks:
    """``rows`` by ``columns`` weights in blocks of GGUF's ``type`` (``"Q4_1"``).

    ``data``: uint8 ``(rows, bytes per row)``, whole blocks one after the other; it may be a view of the file.
    """

    type: str
    rows: int
    columns: int
    data: Tensor

    def dequantised(self) -> Tensor:
        """The weights, float32 ``(rows, columns)``."""
        blocks = self.data.contiguous().view(-1, BLOCK_FORMATS[self.type].bytes)
        return dequantise(blocks, self.type).view(self.rows, self.columns)


def bytes_per_row(kind: str, columns: int) -> int:
    """How many bytes a row of ``columns`` weights, whole blocks of them, takes in blocks of ``kind``."""
    return columns // BLOCK_FORMATS[kind].weights * BLOCK_FORMATS[kind].bytes
