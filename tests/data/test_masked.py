"""Masked rows: as much is hidden as the rate says, in BERT's shares, and everything hidden is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.data.error import DataError
from plait.data.masked import Masked
from plait.data.rows import Ragged
from plait.data.samples import FIXED
from plait.data.whole_words import continuing, words
from plait.text import train_tokenizer

MASK, CLS, SEP = 4, 2, 3


def masked(rows, **options) -> Masked:
    given = {"mask": MASK, "vocab_size": 500, "before": (CLS,), "after": (SEP,), "specials": range(5)}
    return Masked(rows=Ragged.of(rows), **(given | options))


def test_fifteen_of_a_hundred_are_chosen_and_most_become_the_mask():
    rows = np.random.default_rng(0).integers(5, 500, (400, 100))
    batch = masked(rows.tolist()).batch(np.arange(400), 0)
    tokens, targets = batch.tokens.numpy(), batch.targets.numpy()
    asked = targets[:, 1:-1] != -100
    assert (asked.sum(1) == 15).all()
    assert (targets[:, 1:-1][asked] == rows[asked]).all()
    assert (tokens[:, 1:-1][~asked] == rows[~asked]).all()
    assert (tokens[:, 0] == CLS).all() and (tokens[:, -1] == SEP).all()
    assert (targets[:, [0, -1]] == -100).all()
    read, said = tokens[:, 1:-1][asked], rows[asked]
    hidden, same = (read == MASK).mean(), (read == said).mean()
    assert abs(hidden - 0.8) < 0.02 and abs(same - 0.1) < 0.015
    others = read[(read != MASK) & (read != said)]
    assert others.min() >= 5 and len(set(others.tolist())) > 200  # of all the vocabulary, never a special one
    places = asked.sum(0)
    assert places.min() > 30 and places.max() < 95  # of 60 expected: no place is spared


@given(row=st.lists(st.integers(0, 20), min_size=0, max_size=30), rate=st.sampled_from([0.15, 0.5]))
def test_special_tokens_are_never_hidden(row: list[int], rate: float):
    batch = masked([row, [7]], vocab_size=30, rate=rate).batch(np.array([0, 1]), 0)
    asked = batch.targets[0] != -100
    text = [id for id in row if id >= 5]
    assert int(asked.sum()) == (max(1, round(len(text) * rate)) if text else 0)
    assert (batch.targets[0][asked] >= 5).all()
    assert batch.mask is not None and batch.mask.sum(1).tolist() == [len(row) + 2, 3]


def test_noise_is_new_each_epoch_and_fixed_for_an_evaluation():
    rows = np.random.default_rng(1).integers(5, 500, (8, 60)).tolist()

    def hidden(epoch: int, seed: int = 0) -> list[list[int]]:
        return masked(rows, seed=seed).batch(np.arange(8), epoch).targets.tolist()

    assert hidden(3) == hidden(3) and hidden(FIXED) == hidden(FIXED)
    assert hidden(0) != hidden(1) != hidden(FIXED) and hidden(0) != hidden(0, seed=1)


def test_whole_words_are_hidden_whole():
    tokenizer = train_tokenizer(
        ["unbelievable things happened to the believers in town", "unhappy townspeople believe"] * 3,
        kind="wordpiece",
        vocab_size=400,
    )
    continues = continuing(tokenizer)
    ids = tokenizer.encode("unbelievable xhappyx townspeople quickly happen to believers", specials=False)
    begins = words(np.array(ids), continues).tolist()
    assert [tokenizer.token(ids[at])[:2] != "##" for at in range(len(ids))] == [at in begins for at in range(len(ids))]
    assert 1 < len(begins) < len(ids)
    objective = masked(
        [ids * 4],
        vocab_size=len(tokenizer),
        specials=tokenizer.special_ids,
        mask=tokenizer.named["mask"],
        continues=continues,
        rate=0.3,
    )
    edges = [*words(np.array(ids * 4), continues).tolist(), 4 * len(ids)]
    for epoch in range(20):
        asked = (objective.batch(np.array([0]), epoch).targets[0, 1:-1] != -100).tolist()
        assert all(len(set(asked[start:end])) == 1 for start, end in zip(edges, edges[1:], strict=False))
        assert 0.2 < sum(asked) / len(asked) <= 0.31


def test_every_kind_of_vocabulary_marks_its_words():
    text = "The believers, in 1969, believed it"
    for kind, expected in (
        ("byte-bpe", ["The", " believers", ",", " in", " 1969", ",", " believed", " it"]),
        ("bpe", ["The", " believers", ",", " in", " 1969", ",", " believed", " it"]),
        ("unigram", ["The", " believers", ",", " in", " 1969", ",", " believed", " it"]),
    ):
        tokenizer = train_tokenizer([text, "The town is in it"] * 3, kind=kind, vocab_size=380)
        ids = tokenizer.encode(text)
        begins = [*words(np.array(ids), continuing(tokenizer)).tolist(), len(ids)]
        found = [tokenizer.decode(ids[a:b], continues=True) for a, b in zip(begins, begins[1:], strict=False)]
        assert found == expected, kind
    with pytest.raises(DataError, match="marks no words"):
        continuing(train_tokenizer(["abc"], kind="characters", vocab_size=300))


def test_what_cannot_be_hidden_is_refused():
    for rate in (0.0, 1.0):
        with pytest.raises(DataError, match="must be between 0 and 1"):
            masked([[7]], rate=rate)
    with pytest.raises(DataError, match="all of 5 ids are special"):
        masked([[7]], vocab_size=5)
