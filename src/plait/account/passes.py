"""Pass: one micro-batch on one device, as far as it decides what is kept of it.

Legend: b rows, n tokens of a row, m tokens of a source's row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from plait.architecture import Architecture, Tower

Precision = Literal["float32", "bfloat16", "pure_bfloat16", "float16"]
POOL = 1 << 22  # numbers in a CPU's pool of masks, as in model/dropout.py
WIDE, INDEX = 4, 8  # bytes of what is float32 whatever the precision, and of a token's number


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One micro-batch on one device.

    Args:
        rows, length, source_length: b, n, m; without a source no m.
        targets: the share of places at which something is asked.
        masked: rows hold padding, or documents kept apart.
        precision: as in a recipe.
        device: whose kernels compute.
        residual, attention, activation: whether something is dropped there.
        slices: how many devices share the heads and feed-forward rows of each layer.
        norms: whether the weights of norms learn.
        learns: whether what a matrix reads is kept, by the matrix's name: it learns, or an adapter beside it does.
    """

    rows: int
    length: int
    source_length: int | None = None
    targets: float = 1.0
    masked: bool = False
    precision: Precision = "float32"
    device: Literal["cuda", "cpu"] = "cuda"
    residual: bool = False
    attention: bool = False
    activation: bool = False
    slices: int = 1
    norms: bool = True
    learns: Callable[[str], bool] = lambda name: True

    @property
    def w(self) -> int:
        """Bytes of a number in the residual stream."""
        return 2 if self.precision == "pure_bfloat16" else 4

    @property
    def c(self) -> int:
        """Bytes of a number that a product makes."""
        return 4 if self.precision == "float32" else 2

    @property
    def autocast(self) -> bool:
        """Whether products take copies in half precision of all that they read."""
        return self.w != self.c

    def dropped(self, numbers: int, size: int) -> int:
        """Bytes of a dropout's mask: booleans; on a CPU a piece of a pool, or where that is too small several."""
        if self.device == "cuda":
            return numbers
        return numbers * size if numbers > POOL // 2 else 0

    def read(self, place: str, names: tuple[str, ...], numbers: int) -> int:
        """What the matrices of these names keep of one value that they all read."""
        readers = sum(self.learns(f"{place}.{name}.weight") for name in names)
        return numbers * (self.c * readers if self.autocast else self.w * min(readers, 1))


def norm(a: Architecture, p: Pass, numbers: int, width: int, size: int) -> int:
    """What a norm over ``width`` keeps of ``numbers`` of ``size`` bytes."""
    size = WIDE if p.autocast and p.device == "cuda" else size  # where autocast leaves no norm in half precision
    spread = numbers // width * WIDE * (2 if a.norm == "layernorm" else 1)
    if a.norm_weight == "offset":  # normed in float32, and multiplied by 1 + w after that
        return (1 + p.norms) * numbers * WIDE + spread
    if a.norm == "layernorm" or p.device == "cuda" or a.norm_weight == "none":
        return numbers * size + spread
    return (1 + p.norms) * numbers * WIDE + spread


def length_of(tower: Tower, p: Pass) -> int:
    """Tokens of a row that a tower reads."""
    return p.source_length if tower.name == "encoder" and p.source_length is not None else p.length
