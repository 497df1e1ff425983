"""Paired: a source that an encoder reads, and the target that a decoder says of it.

    source    the cat </s>
    tokens    <s> die Katze
    targets   die Katze </s>

A decoder alone is asked for one text behind another as chats (``chat.py``).

Legend: b pairs, n target tokens, m source tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from plait.data.batch import Batch
from plait.data.error import DataError
from plait.data.pairs import Encode
from plait.data.rows import Rows, padded, teacher_forced
from plait.data.samples import FIXED, Numbers
from plait.data.subwords import Subwords


class Tokenizer(Protocol):
    """What pairs ask of a tokenizer: ``plait.Tokenizer`` is one."""

    @property
    def prefix(self) -> tuple[int, ...]:
        """The ids before a text."""
        ...

    @property
    def target(self) -> Tokenizer | None:
        """The tokenizer of the other side, where it is another."""
        ...

    def encode_batch(self, texts: Sequence[str], specials: bool = True, *, control: bool = True) -> list[list[int]]:
        """The ids of each text."""
        ...


class Rules(Protocol):
    """What pairs ask of decode rules: ``plait.checkpoint.DecodeRules`` are some."""

    @property
    def start(self) -> int | None:
        """What a decoder begins with."""
        ...

    @property
    def end(self) -> tuple[int, ...]:
        """What ends a text."""
        ...

    @property
    def forced_first(self) -> int | None:
        """What it always says first."""
        ...


def encoders(tokenizer: Tokenizer, rules: Rules) -> tuple[Encode, Encode]:
    """How source and target become ids, so that training asks what decoding will do.

    A source has around it what the tokenizer puts there, as in generation. A target has in front what the rules force
    to come first, else the tokenizer's own, and one end token behind it. Control strings in either are text.

    Raises DataError where the rules name no end.
    """
    if not rules.end:
        raise DataError("end: the decode rules name no token that ends a text, so a decoder would never learn to stop.")
    other = tokenizer.target or tokenizer
    before = other.prefix if rules.forced_first is None else (rules.forced_first,)

    def source(texts: Sequence[str]) -> list[list[int]]:
        return tokenizer.encode_batch(texts, control=False)

    def target(texts: Sequence[str]) -> list[list[int]]:
        return [[*before, *ids, rules.end[0]] for ids in other.encode_batch(texts, False, control=False)]

    return source, target


@dataclass(frozen=True, eq=False)
class Paired:
    """An objective over pairs, for an encoder and a decoder.

    Args:
        source, target: ids with all that goes around them, the end included.
        start: the token that the decoder begins with, before it has said any: ``DecodeRules.start``.
        pad: fills rows; no place with it counts, whatever it means elsewhere.
        subwords: how tokens fall apart while a model learns; not where it is evaluated.
    """

    source: Rows
    target: Rows
    start: int
    pad: int = 0
    subwords: Subwords | None = None
    whole = False

    @property
    def sizes(self) -> tuple[Numbers, Numbers]:
        """Tokens of each target and source."""
        return self.target.lengths, self.source.lengths

    def said(self) -> Numbers:
        """The tokens that targets have, or fall apart into, sorted, each once."""
        found = np.unique(np.concatenate([self.target[row] for row in range(len(self.target))]).astype(np.int64))
        return found if self.subwords is None else self.subwords.closure(found)

    def batch(self, rows: Numbers, epoch: int) -> Batch:
        """Some pairs, alike in every epoch unless tokens fall apart."""
        sources, targets = [self.source[row] for row in rows], [self.target[row] for row in rows]
        if self.subwords is not None and epoch != FIXED:
            sources = [
                self.subwords.apart(ids, epoch, int(row), "source") for ids, row in zip(sources, rows, strict=True)
            ]
            targets = [
                self.subwords.apart(ids, epoch, int(row), "target") for ids, row in zip(targets, rows, strict=True)
            ]
        source, source_mask = padded(sources, self.pad)  # b m
        tokens, said, mask = teacher_forced(targets, self.start, self.pad)  # b n
        return Batch(tokens=tokens, targets=said, mask=mask, source=source, source_mask=source_mask)
