"""Masked: BERT's objective (Devlin et al. 2019): some tokens of a row are hidden, and the model says what they were.

Of the tokens chosen, 80 % become the mask, 10 % some other token by chance, and 10 % stay; all are asked for. The
choice is a new one each epoch, and always the same in an evaluation.

    row        [CLS] the cat sat on the mat [SEP]
    tokens     [CLS] the [MASK] sat on the mat [SEP]
    targets      -    -   cat    -   -  -  mat   -
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plait.data.batch import UNCOUNTED, Batch
from plait.data.error import DataError
from plait.data.order import draws
from plait.data.rows import Ids, Rows, padded
from plait.data.samples import Numbers
from plait.data.whole_words import words

HIDDEN, RANDOM = 0.8, 0.1  # of those chosen: become the mask, become another token


@dataclass(frozen=True, kw_only=True, eq=False)
class Masked:
    """An objective for an encoder.

    Args:
        rows: ids of text, with nothing around them; see ``Ragged.pieces``.
        mask: the id that hides.
        vocab_size: random tokens are below it.
        before, after: the ids around each row: [CLS] and [SEP].
        specials: ids that are no text: they are never hidden, and never come by chance.
        rate: the share of a row's tokens that is chosen, one at least.
        continues: ``whole_words.continuing``, so that the pieces of a word are chosen together; None: each by itself.
        seed: of the noise.
        pad: fills rows.
    """

    rows: Rows
    mask: int
    vocab_size: int
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    specials: Iterable[int] = ()
    rate: float = 0.15
    continues: NDArray[np.bool_] | None = None
    seed: int = 0
    pad: int = 0
    whole = False

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise DataError(f"rate: it is {self.rate}, and must be between 0 and 1.")
        if not len(self._ordinary):
            raise DataError(f"vocab_size: all of {self.vocab_size} ids are special; none is left for random tokens.")

    @property
    def sizes(self) -> tuple[Numbers]:
        """Tokens of each row, those around it included."""
        return (self.rows.lengths + len(self.before) + len(self.after),)

    def batch(self, rows: Numbers, epoch: int) -> Batch:
        """Some rows, with an epoch's noise."""
        hidden = [self._hidden(int(row), epoch) for row in rows]
        tokens, mask = padded([tokens for tokens, _ in hidden], self.pad)
        targets, _ = padded([targets for _, targets in hidden], UNCOUNTED)
        return Batch(tokens=tokens, targets=targets, mask=mask)

    def _hidden(self, row: int, epoch: int) -> tuple[Ids, Ids]:
        """A row as it is read, and what is asked of it."""
        noise = draws(self.seed, epoch, row, "masks")
        ids = np.asarray(self.rows[row], np.int64)
        chosen = self._chosen(ids, noise)
        fate = noise.random(len(chosen))
        others = self._ordinary[noise.integers(len(self._ordinary), size=len(chosen))]
        tokens = ids.copy()
        tokens[chosen] = np.where(fate < HIDDEN, self.mask, np.where(fate < HIDDEN + RANDOM, others, ids[chosen]))
        targets = np.full_like(ids, UNCOUNTED)
        targets[chosen] = ids[chosen]
        around = [UNCOUNTED] * len(self.before), [UNCOUNTED] * len(self.after)
        return (
            np.concatenate((self.before, tokens, self.after)).astype(np.int64),
            np.concatenate((around[0], targets, around[1])).astype(np.int64),
        )

    def _chosen(self, ids: Ids, noise: np.random.Generator) -> Numbers:
        """Places to hide, as many as the rate says: whole words in the order of a shuffle, each that still fits."""
        text = np.flatnonzero(~self._special[ids])
        if not len(text):
            return text
        wanted = max(1, round(len(text) * self.rate))
        if self.continues is None:
            return text[noise.permutation(len(text))[:wanted]]
        begins = words(ids[text], self.continues)
        begins = np.union1d(begins, np.flatnonzero(np.diff(text, prepend=-1) > 1))  # a special token parts words
        groups = np.split(text, begins[1:])
        chosen: list[NDArray[np.int64]] = []
        for number in noise.permutation(len(groups)):
            if len(groups[number]) <= wanted:
                chosen.append(groups[number])
                wanted -= len(groups[number])
        return np.concatenate(chosen) if chosen else groups[0]  # a row that is one long word

    @cached_property
    def _special(self) -> NDArray[np.bool_]:
        special = np.zeros(self.vocab_size, np.bool_)
        special[[id for id in (*self.specials, self.mask) if id < self.vocab_size]] = True
        return special

    @cached_property
    def _ordinary(self) -> Numbers:
        return np.flatnonzero(~self._special)
