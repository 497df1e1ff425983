"""BART's noise: as much is cut out as the rate says, one mask for each span, and the whole text is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.data.denoising import Denoising, infilled, permuted, sentence_ends
from plait.data.error import DataError
from plait.data.order import draws
from plait.data.rows import Ragged
from plait.text import train_tokenizer

MASK, BOS, EOS, DOT = 1000, 1001, 1002, 50


def objective(rows, **options) -> Denoising:
    return Denoising(rows=Ragged.of(rows), mask=MASK, start=EOS, before=(BOS,), after=(EOS,), **options)


@given(n=st.integers(0, 80), rate=st.sampled_from([0.15, 0.3, 0.9]), seed=st.integers(0, 9))
def test_masks_stand_where_tokens_went(n: int, rate: float, seed: int):
    spoilt = infilled(np.arange(n), np.arange(n), MASK, draws(seed, 0, 0), rate=rate, mean_span=3.0).tolist()
    kept = [id for id in spoilt if id != MASK]
    assert kept == sorted(set(kept)) and len(kept) == n - round(rate * n)
    # Wherever something is missing there is a mask
    for before, after in zip([-1, *kept], [*kept, n], strict=True):
        if after != before + 1:
            here = spoilt.index(before) + 1 if before >= 0 else 0
            assert spoilt[here] == MASK


def test_spans_are_of_poissons_lengths():
    n = 30_000
    spoilt = infilled(np.arange(n), np.arange(n), MASK, draws(0, 0, 0), rate=0.3, mean_span=3.0)
    assert abs((spoilt == MASK).sum() - 3000) < 100  # 9,000 tokens in spans of 3
    # Masks with nothing gone beside them are spans of length 0: e^-3 of them, those alone in their gap that is
    alone = sum(
        a + 1 == b for a, mask, b in zip(spoilt, spoilt[1:], spoilt[2:], strict=False) if mask == MASK and b != MASK
    )
    assert 80 < alone < 160


def test_whole_words_go_whole():
    begins = np.array([0, 3, 4, 8, 9, 15])
    edges = [*begins.tolist(), 20]
    for seed in range(30):
        spoilt = infilled(np.arange(20), begins, MASK, draws(seed, 0, 0), rate=0.5, mean_span=2.0).tolist()
        there = [[id in spoilt for id in range(a, b)] for a, b in zip(edges, edges[1:], strict=False)]
        assert all(len(set(word)) == 1 for word in there)
        assert sum(word[0] for word in there) == 3


def test_sentences_change_places_whole():
    text = np.array([1, 2, DOT, 3, DOT, 4, 5, 6, DOT, 7])
    orders = {tuple(permuted(text, np.array([DOT]), draws(seed, 0, 0)).tolist()) for seed in range(200)}
    assert len(orders) == 24  # all orders of four
    sentences = ["1 2 50", "3 50", "4 5 6 50", "7"]
    for order in orders:
        spelt = " ".join(map(str, order))
        assert sorted(order) == sorted(text.tolist()) and all(sentence in spelt for sentence in sentences)


def test_the_whole_text_is_asked_for():
    rows = [list(range(10, 40)), [7, DOT, 8, 9]]
    batch = objective(rows, rate=0.3, sentence_ends=[DOT], pad=0).batch(np.array([0, 1]), 2)
    assert batch.targets[0].tolist() == [BOS, *rows[0], EOS]
    assert batch.targets[1, :6].tolist() == [BOS, *rows[1], EOS] and (batch.targets[1, 6:] == -100).all()
    assert batch.tokens[0].tolist() == [EOS, BOS, *rows[0]]
    assert batch.source is not None and batch.source_mask is not None
    assert (batch.source[:, 0] == BOS).all() and (batch.source == EOS).sum() == 2
    assert (batch.source[0] == MASK).any()
    assert batch.source_mask.sum(1).tolist() == [int((row != 0).sum()) for row in batch.source]
    again = objective(rows, rate=0.3, sentence_ends=[DOT]).batch(np.array([0]), 2)
    assert again.source is not None
    assert again.source[0].tolist() == batch.source[0, : again.source.shape[1]].tolist()


def test_what_makes_no_noise_is_refused():
    with pytest.raises(DataError, match="rate, mean_span"):
        objective([[1]], rate=1.0)
    with pytest.raises(DataError, match="never learn to stop"):
        Denoising(rows=Ragged.of([[1]]), mask=MASK, start=0, after=())


def test_sentences_end_where_their_tokens_say_so():
    text = "It rains. Does it? Yes! 下雨了。 A. B"
    for kind in ("byte-bpe", "bpe", "characters", "bytes"):
        tokenizer = train_tokenizer([text] * 3, kind=kind, vocab_size=600)
        ids = tokenizer.encode(text)
        ends = np.flatnonzero(np.isin(ids, sentence_ends(tokenizer)))
        found = [tokenizer.decode(part) for part in np.split(np.array(ids), ends + 1)]
        others = ["It rains.", " Does it?", " Yes!", " 下雨了。", " A.", " B"]
        assert found == (others if kind != "bytes" else [*others[:3], " 下雨了。 A.", " B"]), kind
    with pytest.raises(DataError, match="permute: no token of this vocabulary ends"):
        sentence_ends(train_tokenizer(["abc"], kind="alphabet", min_frequency=1))
