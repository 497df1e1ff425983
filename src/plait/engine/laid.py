"""Laid: a pass as tensors on a device, its sequences side by side in batches, all brought there by one copy.

Legend: n rows of the pass, b sequences of a batch, q rows of each, t pages, s = 16 t places for tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from plait.architecture import Rope
from plait.engine.pages import PAGE, Pages
from plait.engine.passes import Held, Pass, Turns
from plait.engine.program import Attend, Program, Space, Store

Array = Any  # of numpy while a pass is laid, a tensor once it was brought
T = TypeVar("T")
_ALIGNMENT = 16  # bytes, in what is brought


@dataclass(frozen=True)
class Table:
    """What a batch's sequences hold in a space. Entries beyond a sequence's own mean nothing."""

    pages: Array  # (b, t) int32
    lengths: Array  # (b,) int32
    positions: Array | None  # (b, s) int32, where scores go by distance


@dataclass(frozen=True)
class Batch:
    """Sequences that read about as many rows each: a shorter one's last row stands there again, and is the same."""

    rows: Array | None  # (b, q) int32; None where every row of the pass is a sequence
    tables: Mapping[Space, Table]


@dataclass(frozen=True)
class Laid:
    """What operations read of a pass, under the same names, and what attention over batches needs besides."""

    tokens: Array  # (n,), as all that follow
    positions: Array
    orders: Array
    begins: Array  # (sequences + 1,)
    taken: Array  # (wanted,)
    turns: Mapping[Rope, Array]  # (n, r) cosines, then sines
    types: Array | None
    places: Mapping[Space, Array]  # (n,), where rows are stored: 16 * page + slot
    batches: tuple[Batch, ...]
    pages: Mapping[Space, Pages]
    _seen: dict[Hashable, Any] = field(default_factory=dict)

    def turns_of(self, rope: Rope) -> Tensor:
        """Each row's cosines, then sines ``(n, r)``."""
        return self.turns[rope]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What layers of one kind share, made by the first."""
        if key not in self._seen:
            self._seen[key] = make()
        return self._seen[key]

    def anew(self) -> Laid:
        """The same with nothing made yet."""
        return dataclasses.replace(self, _seen={})


class Laying:
    """What a program asks of every pass, and the pass laid so."""

    def __init__(self, program: Program) -> None:
        attends = [o for o in program.operations if isinstance(o, Attend)]
        self._stored: set[Space] = {o.space for o in program.operations if isinstance(o, Store)}
        self._attended: set[Space] = {o.space for o in attends}
        self._by_distance: set[Space] = {o.space for o in attends if o.alibi is not None or o.relative is not None}

    def lay(self, pass_: Pass, *, whole: bool = False) -> Laid:
        """Arrays of numpy. ``whole``: pages up to a power of two, so that few shapes occur."""
        counts = np.diff(pass_.begins)
        return Laid(
            tokens=pass_.tokens,
            positions=pass_.positions,
            orders=pass_.orders,
            begins=pass_.begins,
            taken=pass_.taken,
            turns={rope: turns.table[turns.lines] for rope, turns in pass_.turns.items()},
            types=pass_.types,
            places={space: _places(pass_, pass_.spaces[space]) for space in self._stored},
            batches=tuple(
                Batch(rows, {space: self._table(space, pass_.spaces[space], which, whole) for space in self._attended})
                for which, rows in _divided(pass_.begins, counts)
            ),
            pages={space: held.pages for space, held in pass_.spaces.items()},
        )

    def _table(self, space: Space, held: Held, which: np.ndarray, whole: bool) -> Table:
        lengths = held.lengths[which]
        most = max(1, -(-int(lengths.max()) // PAGE))
        pages = _padded([held.tables[i] for i in which], power(most) if whole else most)
        positions = held.pages.positions[pages].reshape(len(which), -1) if space in self._by_distance else None
        return Table(pages, lengths, positions)


def power(n: int) -> int:
    """The next power of two, from 1."""
    return 1 << max(n - 1, 0).bit_length()


def widened(pass_: Pass, rows: int) -> Pass:
    """A pass of one row a sequence, all of them wanted, with its last row and sequence repeated up to ``rows``: they
    write again what it writes."""
    more = rows - pass_.rows

    def wide(array: np.ndarray) -> np.ndarray:
        return np.pad(array, (0, more), mode="edge")

    return dataclasses.replace(
        pass_,
        tokens=wide(pass_.tokens),
        positions=wide(pass_.positions),
        orders=wide(pass_.orders),
        sequences=np.arange(rows, dtype=np.int32),
        begins=np.arange(rows + 1, dtype=np.int32),
        taken=np.arange(rows, dtype=np.int32),
        spaces={
            space: Held(held.pages, held.tables + held.tables[-1:] * more, wide(held.lengths))
            for space, held in pass_.spaces.items()
        },
        turns={rope: Turns(turns.table, wide(turns.lines)) for rope, turns in pass_.turns.items()},
    )


def arrays(tree: Any) -> list[np.ndarray]:
    """Every array of what was laid, in order."""
    found: list[np.ndarray] = []
    _mapped(tree, found.append)
    return found


def end_to_end(parts: list[np.ndarray]) -> np.ndarray:
    """Their bytes in one stretch."""
    ends = _ends(parts)
    flat = np.empty(ends[-1] if ends else 0, np.uint8)
    for part, end in zip(parts, ends, strict=True):
        size = _size(part)
        flat[end - size : end - size + part.nbytes] = np.ascontiguousarray(part).view(np.uint8).reshape(-1)
    return flat


def spread(laid: Laid, flat: Tensor) -> Laid:
    """The same with tensors for arrays: views of the stretch ``flat`` that ``end_to_end`` made of them."""
    parts = arrays(laid)
    ends = iter(_ends(parts))

    def view(part: np.ndarray) -> Tensor:
        start = next(ends) - _size(part)
        dtype = torch.from_numpy(part[:0]).dtype
        return flat[start : start + part.nbytes].view(dtype).view(part.shape)

    return _mapped(laid, view)


def _divided(begins: np.ndarray, counts: np.ndarray) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Which sequences are a batch, and its rows ``(b, q)``: those whose counts of rows round up to the same power of
    two, so that less than half of a batch is repetition."""
    if (counts == 1).all():
        return [(np.arange(len(counts)), None)] if len(counts) else []
    kinds: dict[int, list[int]] = {}
    for i, count in enumerate(counts.tolist()):
        if count:
            kinds.setdefault(power(count), []).append(i)
    found: list[tuple[np.ndarray, np.ndarray | None]] = []
    for numbers in kinds.values():
        which = np.array(numbers)
        q = np.arange(int(counts[which].max()))
        rows = begins[which][:, None] + np.minimum(q, counts[which][:, None] - 1)
        found.append((which, rows.astype(np.int32)))
    return found


def _places(pass_: Pass, held: Held) -> np.ndarray:
    most = max((len(table) for table in held.tables), default=1)
    pages = _padded(held.tables, most)[pass_.sequences, pass_.orders // PAGE]
    return pages * PAGE + pass_.orders % PAGE


def _padded(tables: Any, width: int) -> np.ndarray:
    found = np.zeros((len(tables), width), np.int32)
    for line, table in zip(found, tables, strict=True):
        line[: len(table)] = table[:width]
    return found


def _size(part: np.ndarray) -> int:
    return -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT


def _ends(parts: list[np.ndarray]) -> list[int]:
    return np.cumsum([_size(part) for part in parts]).tolist()


def _mapped(tree: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """A record like this one, of what arrays were changed into."""
    match tree:
        case np.ndarray():
            return change(tree)
        case Mapping():
            return {key: _mapped(value, change) for key, value in tree.items()}
        case tuple():
            return tuple(_mapped(value, change) for value in tree)
        case Laid() | Batch() | Table():
            parts = {f.name: _mapped(getattr(tree, f.name), change) for f in dataclasses.fields(tree)}
            return dataclasses.replace(tree, **parts)
    return tree
