"""Whole words: which pieces of a vocabulary go on with the word before them, by the mark that it has for words.

##     in front of a piece that goes on                     BERT's WordPiece
Ġ ▁    in front of a piece that begins a word               byte-level BPE, sentencepiece
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plait.data.error import DataError

_CONTINUES = "##"
_BEGINS = "Ġ▁ "  # the last: vocabularies in which a space is a space


class Vocabulary(Protocol):
    """What this asks of a tokenizer: ``plait.Tokenizer`` is one."""

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids that are no text."""
        ...

    def __len__(self) -> int: ...

    def token(self, id: int) -> str:
        """The vocabulary's own spelling."""
        ...


def continuing(tokenizer: Vocabulary) -> NDArray[np.bool_]:
    """``word_marks``; raises DataError where the vocabulary marks no words."""
    found = word_marks(tokenizer)
    if found is None:
        raise DataError("whole_words: this vocabulary marks no words; leave whole_words out.")
    return found


def word_marks(tokenizer: Vocabulary) -> NDArray[np.bool_] | None:
    """For every id whether it goes on with a word; letters and digits do, other signs are words of their own. None
    where the vocabulary marks no words: one of characters, say."""
    tokens = [_token(tokenizer, id) for id in range(len(tokenizer))]
    if any(token.startswith(_CONTINUES) and len(token) > 2 for token in tokens):
        return np.array([token.startswith(_CONTINUES) and len(token) > 2 for token in tokens])
    marks = [mark for mark in _BEGINS if any(token[:1] == mark and len(token) > 1 for token in tokens)]
    if not marks:
        return None
    return np.array([token[:1].isalnum() and token[0] not in marks for token in tokens])


def _token(tokenizer: Vocabulary, id: int) -> str:
    """The spelling; "" of an id that is special, or that the vocabulary leaves out."""
    if id in tokenizer.special_ids:
        return ""
    try:
        return tokenizer.token(id)
    except ValueError:
        return ""


def words(ids: NDArray[np.integer[Any]], continues: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Where words begin in a row: everywhere, where nothing is known of them."""
    if continues is None:
        return np.arange(len(ids))
    begins = ~continues[ids]
    begins[:1] = True
    return np.flatnonzero(begins)
