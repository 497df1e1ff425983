"""Paired rows: what is read is what was said one token before, and padding is by length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plait.checkpoint import DecodeRules
from plait.data.error import DataError
from plait.data.given import Given, given
from plait.data.lines import Tally
from plait.data.paired import Paired, encoders
from plait.data.rows import Ragged, padded
from plait.text import Tokenizer, load_tokenizer, train_tokenizer
from tests.text import making

TEXT = ["the cat sat on the mat", "die katze sass auf der matte"] * 4


def test_a_target_is_read_one_token_later():
    source, target = Ragged.of([[5, 6, 7, 1], [8, 1]]), Ragged.of([[5, 1], [6, 7, 8, 1]])
    batch = Paired(source, target, start=9, pad=3).batch(np.array([0, 1]), 0)
    assert batch.source is not None and batch.source.tolist() == [[5, 6, 7, 1], [8, 1, 3, 3]]
    assert batch.source_mask is not None and batch.source_mask.sum(1).tolist() == [4, 2]
    assert batch.tokens.tolist() == [[9, 5, 3, 3], [9, 6, 7, 8]]
    assert batch.targets.tolist() == [[5, 1, -100, -100], [6, 7, 8, 1]]
    assert batch.mask is not None and batch.mask.sum(1).tolist() == [2, 4]


def test_tr4_an_end_that_also_fills_is_read_and_asked_for():
    cells, real = padded(list(map(np.array, ([5, 6, 0], [1, 2, 3, 4, 0]))), 0)
    assert cells.tolist() == [[5, 6, 0, 0, 0], [1, 2, 3, 4, 0]]
    assert real.sum(1).tolist() == [3, 5]
    rows = Ragged.of([[5, 6, 0], [1, 2, 3, 4, 0]])
    batch = Paired(rows, rows, start=0, pad=0).batch(np.array([0, 1]), 0)
    assert batch.source_mask is not None and batch.source_mask.sum(1).tolist() == [3, 5]
    assert batch.targets.tolist() == [[5, 6, 0, -100, -100], [1, 2, 3, 4, 0]]
    assert batch.mask is not None and batch.mask.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert Given(rows, rows, pad=0).batch(np.array([0, 1]), 0).targets.tolist() == [[6, 0, -100, -100], [2, 3, 4, 0]]


def test_tr5_what_is_not_asked_stays_unasked():
    ids, asked = Ragged.of([[4, 5, 6, 7], [4, 5]]), Ragged.of([[-100, -100, -100, 7], [-100, 8]])
    batch = Given(ids, asked).batch(np.array([0, 1]), 0)
    assert batch.tokens.tolist() == [[4, 5, 6], [4, 0, 0]]
    assert batch.targets.tolist() == [[-100, -100, 7], [8, -100, -100]]  # the label given, not the token
    assert batch.real.sum() == 2
    with pytest.raises(DataError, match="every token of every row has a target"):
        Given(ids, Ragged.of([[1, 2, 3], [4, 5]]))


def trained(kind: str, **options) -> Tokenizer:
    return train_tokenizer(TEXT, kind=kind, vocab_size=400, **options)


def test_what_goes_around_texts_is_what_decoding_puts_there():
    joint = trained("bpe", after=("eos",))
    rules = DecodeRules(start=joint.pad, end=(joint.eos,), pad=joint.pad)
    source, target = encoders(joint, rules)
    assert source(TEXT[:1]) == [joint.encode(TEXT[0])] and source(TEXT[:1])[0][-1] == joint.eos
    assert target(TEXT[1:2]) == [joint.encode(TEXT[1])]  # one end, not two
    bare = trained("bpe")
    assert encoders(bare, rules)[1](TEXT[1:2]) == [[*bare.encode(TEXT[1]), joint.eos]]
    # A text that spells the end has no second one
    assert target(["a</s>b"])[0].count(joint.eos) == source(["a</s>b"])[0].count(joint.eos) == 1


def test_separate_vocabularies_and_forced_tokens():
    from dataclasses import replace

    other = train_tokenizer(["xyz zyx"] * 3, kind="characters", vocab_size=300)
    both = replace(trained("bpe", after=("eos",)), target=other)
    source, target = encoders(both, DecodeRules(start=0, end=(2,), forced_first=17))
    assert source(["the cat"]) == [both.encode("the cat")]
    assert target(["xyz"]) == [[17, *other.encode("xyz"), 2]]
    with pytest.raises(DataError, match="no token that ends a text"):
        encoders(both, DecodeRules(start=0))


def test_a_bart_says_its_bos_and_its_eos_once(tmp_path: Path):
    tokenizer = load_tokenizer(making.tokenizer_folder(tmp_path, making.metaspace(), bos_token="<s>", eos_token="</s>"))
    _, target = encoders(tokenizer, DecodeRules(start=2, end=(2,)))
    (ids,) = target(["the town"])
    assert (ids.count(tokenizer.bos), ids.count(tokenizer.eos)) == (1, 1) and ids[0] == 1 and ids[-1] == 2


def test_nothing_left_is_refused():
    with pytest.raises(DataError, match=r"nothing is left of it \(1 over-long\)"):
        list(given([([1, 2, 3], [1, 2, 3])], Tally(), length=2))
