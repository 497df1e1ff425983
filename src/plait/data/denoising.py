"""Denoising: BART's objective (Lewis et al. 2020): an encoder sees a spoilt text, and the decoder says the whole one.

    text          <s> the cat sat on the mat . it slept . </s>
    infilling     <s> the [MASK] the mat . it [MASK] slept . </s>        one mask for a span of any length, 0 included
    permuted      <s> it slept . the cat sat on the mat . </s>           before that, its sentences in another order
    target        <s> the cat sat on the mat . it slept . </s>

Lengths of spans are drawn from a Poisson distribution until together they hold the rate's share of the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.data.batch import Batch
from plait.data.error import DataError
from plait.data.order import draws
from plait.data.rows import Ids, Rows, padded, teacher_forced
from plait.data.samples import Numbers
from plait.data.whole_words import words

ENDS = (".", "!", "?", "。", "！", "？")


class Vocabulary(Protocol):
    """What sentences ask of a tokenizer: ``plait.Tokenizer`` is one."""

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids that are no text."""
        ...

    def __len__(self) -> int: ...

    def token(self, id: int) -> str:
        """The vocabulary's own spelling; a ValueError where the id is none."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Denoising:
    """An objective for an encoder and a decoder.

    Args:
        rows: ids of text, with nothing around them; see ``Ragged.pieces``.
        mask: the id that stands for a span.
        start: the token that the decoder begins with.
        before, after: the ids around each text, in source and target: BART's <s> and </s>; ``after`` holds the end.
        rate: share of the words, or tokens, that is cut out.
        mean_span: of them in a span, on average; some spans have none, and put a mask where nothing was.
        continues: ``whole_words.continuing``, so that spans hold whole words; None: tokens.
        sentence_ends: ids behind which a sentence ends, so that sentences change places; none: they do not.
        seed: of the noise.
        pad: fills rows.

    Raises DataError without an end, and for a rate that is no share.
    """

    rows: Rows
    mask: int
    start: int
    after: tuple[int, ...]
    before: tuple[int, ...] = ()
    rate: float = 0.3
    mean_span: float = 3.0
    continues: NDArray[np.bool_] | None = None
    sentence_ends: Iterable[int] = ()
    seed: int = 0
    pad: int = 0
    whole = False

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1 or self.mean_span < 1:
            raise DataError(f"rate, mean_span: {self.rate} and {self.mean_span}; give a share of 1, and 1 or more.")
        if not self.after:
            raise DataError("after: without an end behind each text a decoder would never learn to stop.")

    @property
    def sizes(self) -> tuple[Numbers]:
        """Tokens of each text, those around it included."""
        return (self.rows.lengths + len(self.before) + len(self.after),)

    def batch(self, rows: Numbers, epoch: int) -> Batch:
        """Some texts, with an epoch's noise."""
        texts = [np.asarray(self.rows[row], np.int64) for row in rows]
        noise = [draws(self.seed, epoch, int(row), "infill") for row in rows]
        spoilt = [self._spoilt(text, own) for text, own in zip(texts, noise, strict=True)]
        source, source_mask = padded([self._around(text) for text in spoilt], self.pad)
        tokens, targets, mask = teacher_forced([self._around(text) for text in texts], self.start, self.pad)
        return Batch(tokens=tokens, targets=targets, mask=mask, source=source, source_mask=source_mask)

    def _spoilt(self, text: Ids, noise: np.random.Generator) -> Ids:
        if len(self._ends):
            text = permuted(text, self._ends, noise)
        return infilled(text, words(text, self.continues), self.mask, noise, rate=self.rate, mean_span=self.mean_span)

    def _around(self, text: Ids) -> Ids:
        return np.concatenate((self.before, text, self.after)).astype(np.int64)

    @cached_property
    def _ends(self) -> Numbers:
        return np.array(sorted(self.sentence_ends), np.int64)


def sentence_ends(tokenizer: Vocabulary) -> list[int]:
    """The ids whose text ends as a sentence does. Raises DataError where the vocabulary has none."""
    found = [id for id in range(len(tokenizer)) if id not in tokenizer.special_ids and _ends_sentence(tokenizer, id)]
    if not found:
        raise DataError(f"permute: no token of this vocabulary ends in one of {' '.join(ENDS)}; leave permute out.")
    return found


def _ends_sentence(tokenizer: Vocabulary, id: int) -> bool:
    try:
        tokenizer.token(id)
    except ValueError:  # left out of the vocabulary
        return False
    return tokenizer.decode([id]).rstrip().endswith(ENDS)


def permuted(text: Ids, ends: Numbers, noise: np.random.Generator) -> Ids:
    """The sentences of a text in another order; what follows its last end is a sentence too."""
    after = np.flatnonzero(np.isin(text, ends)) + 1
    sentences = np.split(text, after[after < len(text)])
    return np.concatenate([sentences[number] for number in noise.permutation(len(sentences))])


def infilled(
    text: Ids, begins: Numbers, mask: int, noise: np.random.Generator, *, rate: float, mean_span: float
) -> Ids:
    """A text with one ``mask`` for each span of words, which begin at ``begins``.

    ``round(rate * words)`` of them go. The spans stand in any order, between any two of the words that stay.
    """
    wanted = round(rate * len(begins))
    lengths: list[int] = []
    while (gone := sum(lengths)) < wanted:
        lengths.append(min(int(noise.poisson(mean_span)), wanted - gone))
    kept = len(begins) - wanted
    # How many words stay before each span; spans of one place follow one another.
    stay = np.sort(noise.integers(kept + 1, size=len(lengths)))
    order = noise.permutation(len(lengths))
    edges = np.append(begins, len(text))
    parts: list[Ids] = []
    at = 0  # words so far
    for before, length in zip(np.diff(stay, prepend=0), np.array(lengths, np.int64)[order], strict=True):
        parts += [text[edges[at] : edges[at + before]], np.array([mask])]
        at += int(before + length)
    return np.concatenate([*parts, text[edges[at] :]]).astype(np.int64)
