"""Subword dropout: the same text in other pieces, a function of seed, epoch and row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from plait.data.paired import Paired
from plait.data.rows import Ragged
from plait.data.samples import FIXED
from plait.data.subwords import Subwords
from plait.text import train_tokenizer

TEXT = "the dog of anna is old and the cat of anna is new and the dog is here and the cat is there"
TOKENIZER = train_tokenizer([TEXT] * 3, kind="byte-bpe", vocab_size=320)
MERGED = TOKENIZER.segmenter.merged


def subwords(rate: float, seed: int = 0, longest: int = 1000) -> Subwords:
    return Subwords.of(MERGED, rate, seed=seed, longest=longest)


def test_merges_are_those_of_the_vocabulary() -> None:
    assert len(MERGED) > 20
    for id, (first, second) in MERGED.items():
        assert TOKENIZER.token(id) == TOKENIZER.token(first) + TOKENIZER.token(second)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_text_stays_and_the_pieces_change(rate: float) -> None:
    ids = np.array(TOKENIZER.encode(TEXT))
    one = subwords(rate)
    rows = [one.apart(ids, epoch, 3, "source") for epoch in range(20)]
    assert all(TOKENIZER.decode(row.tolist()) == TEXT for row in rows)
    assert len({tuple(row.tolist()) for row in rows}) > 10
    assert np.array_equal(rows[4], one.apart(ids, 4, 3, "source"))
    others = (
        one.apart(ids, 4, 2, "source"),
        one.apart(ids, 4, 3, "target"),
        subwords(rate, 1).apart(ids, 4, 3, "source"),
    )
    assert not any(np.array_equal(rows[4], other) for other in others)


def test_each_token_falls_apart_with_its_chance() -> None:
    (id,) = [id for id, pair in MERGED.items() if not set(pair) & MERGED.keys()][:1]
    ids = np.full(2000, id)
    found = subwords(0.3, longest=10_000).apart(ids, 0, 0, "source")
    assert (len(found) - 2000) / 2000 == pytest.approx(0.3, abs=0.04)
    assert np.array_equal(found[found != id].reshape(-1, 2)[0], MERGED[id])


def test_a_row_that_would_be_too_long_stays_as_it_is() -> None:
    ids = np.array(TOKENIZER.encode(TEXT))
    assert subwords(0.9, longest=len(ids)).apart(ids, 0, 0, "source") is ids


def test_ids_without_parts_are_left() -> None:
    ids = np.array([0, 1, len(TOKENIZER) - 1 + 500])
    assert subwords(0.9).apart(ids, 0, 0, "source").tolist() == ids.tolist()


def test_pairs_fall_apart_while_a_model_learns_and_not_where_it_is_evaluated() -> None:
    rows = [TOKENIZER.encode(text) for text in (TEXT, TEXT[:30])]
    lanes = [Ragged.of(rows) for _ in range(2)]
    plain, apart = (Paired(*lanes, start=0, subwords=one) for one in (None, subwords(0.5)))
    number = np.array([0, 1])
    for epoch in (0, 1):
        batch = apart.batch(number, epoch)
        assert batch.source is not None and batch.source.shape[1] > len(rows[0])
        for row, text in enumerate((TEXT, TEXT[:30])):
            assert TOKENIZER.decode(batch.targets[row][batch.mask[row]].tolist()) == text  # type: ignore[index]
    fixed = [one.batch(number, FIXED).source for one in (apart, plain)]
    assert fixed[0] is not None and fixed[1] is not None and torch.equal(fixed[0], fixed[1])
    said = {id for epoch in range(30) for id in apart.batch(number, epoch).targets.flatten().tolist()}
    assert said - {0, -100} <= set(apart.said().tolist()) and len(apart.said()) > len(plain.said())
