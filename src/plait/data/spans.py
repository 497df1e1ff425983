"""Spans: T5's objective (Raffel et al. 2020, section 3.1.4): spans of a text are cut out, and the decoder says them.

    text      Thank you for inviting me to your party last week
    source    Thank you <X> me to your party <Y> week </s>
    target    <X> for inviting <Y> last <Z> </s>

Each span leaves a sentinel, a token of its own, in the source; in the target the sentinels stand for what the source
kept. Spans and what is kept between them are random compositions of their totals (as in T5's own code, where a text
begins kept and ends in a span, so that the last sentinel above does not occur).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.data.batch import Batch
from plait.data.error import DataError
from plait.data.order import draws
from plait.data.rows import Ids, Rows, padded, teacher_forced
from plait.data.samples import Numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class Spans:
    """An objective for an encoder and a decoder.

    Args:
        rows: ids of text, with nothing around them, two in each row at least: see ``Ragged.pieces``, ``text_length``.
        sentinels: their ids in the order in which they are used: T5's begin with ``<extra_id_0>``, its highest id.
        start: the token that the decoder begins with.
        end: the token behind source and target.
        rate: share of the tokens that is cut out.
        mean_span: tokens in a span, on average.
        seed: of the noise.
        pad: fills rows.

    Raises DataError for too few sentinels, and rows that are too short.
    """

    rows: Rows
    sentinels: Sequence[int]
    start: int
    end: int
    rate: float = 0.15
    mean_span: float = 3.0
    seed: int = 0
    pad: int = 0
    whole = False

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1 or self.mean_span < 1:
            raise DataError(f"rate, mean_span: {self.rate} and {self.mean_span}; give a share of 1, and 1 or more.")
        if (least := int(self.rows.lengths.min(initial=2))) < 2:
            raise DataError(
                f"rows: one has {least} tokens, and to cut a span out of it takes two; use pieces(least=2)."
            )
        longest = int(self.rows.lengths.max(initial=2))
        spans = _cut_out(longest, self.rate, self.mean_span)[1]
        if spans > len(self.sentinels):
            raise DataError(
                f"sentinels: a row of {longest} tokens has {spans} spans, and there are {len(self.sentinels)} "
                "sentinels; cut shorter rows, or allow longer spans."
            )

    @property
    def sizes(self) -> tuple[Numbers, Numbers]:
        """Tokens of each target and source."""
        found = np.array([_cut_out(n, self.rate, self.mean_span) for n in range(int(self.rows.lengths.max()) + 1)])
        gone, spans = found[self.rows.lengths].T
        return gone + spans + 1, self.rows.lengths - gone + spans + 1

    def batch(self, rows: Numbers, epoch: int) -> Batch:
        """Some rows, with an epoch's noise."""
        pairs = [self._pair(int(row), epoch) for row in rows]
        source, source_mask = padded([source for source, _ in pairs], self.pad)
        tokens, targets, mask = teacher_forced([target for _, target in pairs], self.start, self.pad)
        return Batch(tokens=tokens, targets=targets, mask=mask, source=source, source_mask=source_mask)

    def _pair(self, row: int, epoch: int) -> tuple[Ids, Ids]:
        ids = np.asarray(self.rows[row], np.int64)
        noise = noise_spans(len(ids), draws(self.seed, epoch, row, "spans"), rate=self.rate, mean_span=self.mean_span)
        source, target = (replaced(ids, gone, self.sentinels) for gone in (noise, ~noise))
        return np.append(source, self.end), np.append(target, self.end)


def replaced(ids: Ids, gone: NDArray[np.bool_], sentinels: Sequence[int]) -> Ids:
    """The ids with each stretch that is gone replaced by one sentinel, the next one each time."""
    first = gone & ~np.concatenate(([False], gone[:-1]))
    found = np.where(first, np.asarray(sentinels)[np.maximum(np.cumsum(first) - 1, 0)], ids)
    return found[first | ~gone]


def noise_spans(length: int, noise: np.random.Generator, *, rate: float, mean_span: float) -> NDArray[np.bool_]:
    """Which of ``length`` tokens are cut out: kept and cut stretches in turn, their number and totals fixed."""
    gone, spans = _cut_out(length, rate, mean_span)
    stretches = np.stack((_composition(length - gone, spans, noise), _composition(gone, spans, noise)), axis=1)
    return np.repeat(np.arange(2 * spans) % 2 == 1, stretches.reshape(-1))


def text_length(source_length: int, *, rate: float = 0.15, mean_span: float = 3.0) -> tuple[int, int]:
    """The longest text whose source, with its end, has at most ``source_length`` tokens, and its target's length: 568
    and 114 for T5's 512. Raises DataError where two tokens do not fit."""
    fitting = 0
    for length in range(2, 4 * source_length):
        gone, spans = _cut_out(length, rate, mean_span)
        if length - gone + spans + 1 <= source_length:
            fitting = length
    if not fitting:
        raise DataError(f"length: a source of {source_length} tokens holds no text with a span cut out.")
    gone, spans = _cut_out(fitting, rate, mean_span)
    return fitting, gone + spans + 1


def _cut_out(length: int, rate: float, mean_span: float) -> tuple[int, int]:
    """How many of ``length`` tokens go, and in how many spans; at least one of each goes and stays."""
    gone = min(max(round(length * rate), 1), max(length - 1, 1))
    spans = min(max(round(gone / mean_span), 1), max(length - gone, 1))
    return gone, spans


def _composition(total: int, parts: int, noise: np.random.Generator) -> Numbers:
    """``total`` as a sum of ``parts`` numbers of at least 1, all such sums alike."""
    borders = np.sort(noise.permutation(total - 1)[: parts - 1]) + 1
    return np.diff(np.concatenate(([0], borders, [total])))
