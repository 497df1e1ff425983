"""Corpus: sentences of the quickstart's grammar as ids, so that every experiment runs after a plain install.

text            stretches of all English sentences, one behind the other
hidden          English sentences with some of their words hidden
pairs           English sentences and their Chinese
rows_of_pairs   the same, one behind the other
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain

import numpy as np

from plait.data.batch import UNCOUNTED
from plait.data.documents import Counts
from plait.data.given import Given
from plait.data.masked import Masked
from plait.data.packing import CausalStream
from plait.data.paired import Paired
from plait.data.rows import Ragged
from plait.data.samples import ByRows, Samples
from plait.data.shards import Footer, Shard
from plait.data.tokens import Tokens
from plait.text import Tokenizer, train_tokenizer
from plait.training.quickstart.grammar import Pair, corpus
from plait.training.quickstart.preparing import texts

N_TRAIN, N_TEST = 12_000, 600
VOCABULARY = 4000  # more than is learnt: every word becomes a token


@cache
def sentences() -> tuple[list[Pair], list[Pair]]:
    """Those to learn from, and others, none of whose combinations of words is among these."""
    return corpus(N_TRAIN, N_TEST)


@cache
def english() -> Tokenizer:
    """The vocabulary of the English sentences: a token for each word."""
    return train_tokenizer(
        (pair.en for pair in sentences()[0]), kind="bpe", vocab_size=VOCABULARY, specials={"mask": "<mask>"}
    )


@cache
def both() -> Tokenizer:
    """One vocabulary of English words and Chinese characters."""
    return train_tokenizer(texts(sentences()[0]), kind="bpe", vocab_size=VOCABULARY)


def text(length: int, rows: int, *, seed: int = 0, held_out: bool = False) -> CausalStream:
    """Stretches of ``length`` tokens, ``rows`` of them a step."""
    ids = english().encode_batch([pair.en for pair in sentences()[held_out]])
    tokens = in_memory([[*row, ended(english())] for row in ids])
    return CausalStream(tokens=tokens, length=length, rows=rows, packing="stream", seed=seed)


def hidden(rows: int, *, seed: int = 0, held_out: bool = False) -> Samples:
    """Sentences, ``rows`` of them a step, a word in seven hidden."""
    tokenizer = english()
    found = Ragged.of(tokenizer.encode_batch([pair.en for pair in sentences()[held_out]]))
    mask, special = tokenizer.named["mask"], tuple(tokenizer.named.values())
    objective = Masked(rows=found, mask=mask, vocab_size=len(tokenizer), specials=special, seed=seed)
    return Samples(objective, ByRows(len(found), rows, seed))


def pairs(rows: int, *, seed: int = 0, held_out: bool = False) -> Samples:
    """Translations for an encoder and a decoder, ``rows`` of them a step."""
    source, target = (Ragged.of(side) for side in sides(held_out))
    objective = Paired(source, target, start=both().named["bos"], pad=both().named["pad"])
    return Samples(objective, ByRows(len(source), rows, seed))


def rows_of_pairs(rows: int, *, seed: int = 0, held_out: bool = False) -> Samples:
    """The same for a decoder alone: source and target in one row, of which the target is asked."""
    source, target = sides(held_out)
    ids = [[*one, *other] for one, other in zip(source, target, strict=True)]
    asked = [[UNCOUNTED] * len(one) + other for one, other in zip(source, target, strict=True)]
    objective = Given(Ragged.of(ids), Ragged.of(asked), pad=both().named["pad"])
    return Samples(objective, ByRows(len(ids), rows, seed))


def sides(held_out: bool) -> tuple[list[list[int]], list[list[int]]]:
    """English and Chinese as ids, an end behind each."""
    tokenizer, found = both(), sentences()[held_out]
    english, chinese = (
        [[*ids, ended(tokenizer)] for ids in tokenizer.encode_batch(side)]
        for side in ([pair.en for pair in found], [pair.zh for pair in found])
    )
    return english, chinese


def ended(tokenizer: Tokenizer) -> int:
    """The id behind a sentence."""
    return tokenizer.named["eos"]


def in_memory(rows: Sequence[Sequence[int]]) -> Tokens:
    """Documents of ids as a store that no file holds."""
    ids = np.array(list(chain.from_iterable(rows)), np.int32)
    starts = np.cumsum([0, *map(len, rows[:-1])])
    footer = Footer(key="", number=0, type="int32", tokens=len(ids), documents=len(rows), pieces=len(rows), checksum=0)
    return Tokens.of([Shard(footer, ids, starts)], Counts(documents=len(rows)))
