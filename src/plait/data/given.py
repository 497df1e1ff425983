"""Given: rows whose targets come with them, -100 where nothing is asked; they are only shifted and padded.

ids        <user> hi <bot> hello <end>
asked        -    -    -   hello <end>
tokens     <user> hi <bot> hello             what is read
targets      -    -  hello <end>             what is said of it, one later
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from plait.data.batch import UNCOUNTED, Batch
from plait.data.error import DataError
from plait.data.lines import Tally
from plait.data.longest import Longest, fit
from plait.data.rows import Rows, padded
from plait.data.samples import Numbers


@dataclass(frozen=True, eq=False)
class Given:
    """An objective for a decoder.

    Args:
        ids: the tokens of each row.
        asked: for each of them the token that should have been said there, -100 where none is; the first is never
            said, for nothing stands before it.
        pad: fills rows; no place with it counts, whatever it means elsewhere.

    Raises DataError where rows and what is asked are of different lengths.
    """

    ids: Rows
    asked: Rows
    pad: int = 0
    whole = False

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.asked) or (self.ids.lengths != self.asked.lengths).any():
            raise DataError("asked: every token of every row has a target, -100 where nothing is asked.")

    @property
    def sizes(self) -> tuple[Numbers]:
        """Tokens that are read of each row."""
        return (self.ids.lengths - 1,)

    def batch(self, rows: Numbers, epoch: int) -> Batch:
        """Some rows, alike in every epoch."""
        tokens, mask = padded([self.ids[row][:-1] for row in rows], self.pad)
        targets, _ = padded([self.asked[row][1:] for row in rows], UNCOUNTED)
        return Batch(tokens=tokens, targets=targets, mask=mask)


def given(
    rows: Iterable[tuple[Sequence[int], Sequence[int]]],
    tally: Tally,
    *,
    length: int,
    longest: Longest = "drop",
) -> Iterator[list[Sequence[int]]]:
    """Rows of ids and of what is asked, those that are longer than ``length`` left out or cut.

    A cut row of which nothing would be asked is left out too.

    Raises DataError where nothing is left.
    """
    kept = 0
    for ids, asked in rows:
        fitting = fit((ids, asked), length, longest, tally, end=0)
        if fitting is None:
            continue
        if len(ids) > length and all(target == UNCOUNTED for target in fitting[1]):
            tally.cut -= 1  # it is left out after all
            continue
        kept += 1
        yield fitting
    tally.refuse_nothing("data", kept)
