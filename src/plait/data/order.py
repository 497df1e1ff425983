"""Order: shuffles and random draws as functions of (seed, epoch, position), so that any step is reached at once.

Nothing is carried from one step to the next: a run that is resumed, or that reads ahead, sees what it would have seen.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import overload

import numpy as np
from numpy.typing import NDArray

from plait.data.error import DataError

_ROUNDS = 8
_WORD = 2**64


def draws(seed: int, epoch: int, position: int, purpose: str = "") -> np.random.Generator:
    """Random numbers that belong to one position of one epoch, whatever was drawn before.

    numpy's Philox (Salmon et al. 2011), keyed by seed and epoch, with the counter at the position. ``purpose``, at most
    eight letters, keeps apart what different readers draw for one position: "masks", "spans".

    Raises DataError for a number outside 0 to 2^64 - 1.
    """
    for name, value in (("seed", seed), ("epoch", epoch), ("position", position)):
        if not 0 <= value < _WORD:
            raise DataError(f"{name}: it is {value}, and must be from 0 to 2^64 - 1.")
    letters = purpose.encode("ascii")
    if len(letters) > 8:
        raise DataError(f"purpose: {purpose!r} has more than eight letters.")
    key = np.array((seed, epoch), np.uint64)
    counter = np.array((0, 0, position, int.from_bytes(letters, "little")), np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


@overload
def shuffled(position: int, n: int, *, seed: int, epoch: int) -> int: ...
@overload
def shuffled(position: NDArray[np.integer], n: int, *, seed: int, epoch: int) -> NDArray[np.int64]: ...


def shuffled(position: int | NDArray[np.integer], n: int, *, seed: int, epoch: int) -> int | NDArray[np.int64]:
    """Which of ``n`` samples is read at a position of an epoch: a permutation of 0 to n - 1 that is stored nowhere.

    A Feistel network over a rectangle of ``rows x columns`` cells, just large enough for n (Black and Rogaway 2002):
    each round moves every row around by a hash of its number, or every column, so every round can be undone. What lands
    on one of the few cells past n walks on until it does not.

    Args:
        position: from 0 to n - 1, one or an array of any shape.
        n: how many there are, below 2^62.
        seed, epoch: from 0 to 2^64 - 1.

    Raises DataError for a position that does not exist.
    """
    positions = np.asarray(position)
    if not 0 < n < 2**62:
        raise DataError(f"n: it is {n}, and must be from 1 to 2^62 - 1.")
    if positions.size and not (0 <= positions.min() and positions.max() < n):
        wrong = positions.min() if positions.min() < 0 else positions.max()
        raise DataError(f"position: it is {wrong}, and must be from 0 to {n - 1}.")
    keys = _round_keys(seed, epoch)
    columns = math.isqrt(n - 1) + 1
    rows = -(-n // columns)
    cells = _network(positions.astype(np.uint64).reshape(-1), rows, columns, keys)
    while (outside := np.flatnonzero(cells >= n)).size:
        cells[outside] = _network(cells[outside], rows, columns, keys)
    found = cells.astype(np.int64).reshape(positions.shape)
    return found if isinstance(position, np.ndarray) else int(found)


@lru_cache(maxsize=64)
def _round_keys(seed: int, epoch: int) -> tuple[np.uint64, ...]:
    return tuple(draws(seed, epoch, 0, "order").bit_generator.random_raw(_ROUNDS))


def _network(cells: NDArray[np.uint64], rows: int, columns: int, keys: tuple[np.uint64, ...]) -> NDArray[np.uint64]:
    row, column = np.divmod(cells, np.uint64(columns))
    for number, key in enumerate(keys):
        if number % 2:
            column = (column + _hash(row, key) % np.uint64(columns)) % np.uint64(columns)
        else:
            row = (row + _hash(column, key) % np.uint64(rows)) % np.uint64(rows)
    return row * np.uint64(columns) + column


def _hash(values: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    """SplitMix64's finalizer (Steele et al. 2014) of the key and a value; arrays wrap around at 2^64."""
    mixed = (values + key) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
