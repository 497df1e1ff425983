"""Split text: the end of a text is kept for evaluation, and each part counts the bytes of its own, for bits a byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from plait.data.tokens import Tokens
from plait.text import Tokenizer

CHUNK = 1 << 20  # tokens


def split_text(tokens: Tokens, fraction: float, tokenizer: Tokenizer) -> tuple[Tokens, Tokens]:
    """``Tokens.split``, with the count ``bytes`` of each part: what the last one's tokens spell, and the rest."""
    train, valid = tokens.split(fraction)
    last = min(spelled(valid, tokenizer), tokens.counts["bytes"])
    parts = ((train, tokens.counts["bytes"] - last), (valid, last))
    first, second = (replace(part, counts={**part.counts, "bytes": count}) for part, count in parts)
    return first, second


def spelled(tokens: Tokens, tokenizer: Tokenizer) -> int:
    """How many bytes of text tokens spell: special ones none, and the first of a text what it spells there."""
    inside, first = (lengths(tokenizer, first=first) for first in (False, True))
    special = np.zeros(len(inside), np.bool_)
    special[list(tokenizer.special_ids)] = True
    total, begins = 0, True
    for start in range(0, len(tokens), CHUNK):
        stop = min(start + CHUNK, len(tokens))
        ids = tokens.read(start, stop)
        after = np.concatenate(([begins], special[ids[:-1]]))  # whether a text begins at a token
        after[tokens.borders(start, stop) - start] = True
        total += int(np.where(after, first[ids], inside[ids])[~special[ids]].sum())
        begins = bool(special[ids[-1]])
    return total


def lengths(tokenizer: Tokenizer, *, first: bool) -> NDArray[np.int64]:
    """The bytes that each id spells."""
    ids = range(len(tokenizer))
    return np.array([len(tokenizer.segmenter.spell(id, first)) for id in ids], np.int64)
