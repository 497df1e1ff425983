"""The corpus of memories: which tokens stand in which rows, which count, and what is asked at each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from plait.checkpoint import Checkpoint
from plait.inspection import InspectionError
from plait.inspection.memory import Corpus, pair_corpus, text_corpus
from tests.inspection.corpora import OTHER, PAIRS, TEXT, model, pairs, texts, written


def spelt(checkpoint: Checkpoint, ids: list[int]) -> str:
    assert checkpoint.tokenizer is not None
    return checkpoint.tokenizer.decode(ids, continues=True)


def places(read: Corpus, tower: str) -> np.ndarray:
    return np.concatenate([read.lanes[tower].row(number)[1] for number in range(len(read))])


@pytest.mark.parametrize("name", ["gpt2", "bert"])
@pytest.mark.parametrize("around", [False, True])
def test_rows_are_the_text(name: str, around: bool, tmp_path: Path) -> None:
    checkpoint = model(name, around=around)
    read = texts(checkpoint, tmp_path, length=16)
    (tower,) = read.lanes
    lane = read.lanes[tower]
    text = ""
    for number in range(len(read)):
        ids, where = lane.row(number)
        assert len(ids) == len(where) <= 16
        inside = ids[1:-1] if around else ids
        text += spelt(checkpoint, inside.tolist())
        if around:
            assert (where[[0, -1]] == -1).all() and (where[1:-1] >= 0).all()
        else:
            assert (where[0] == -1) == (name == "gpt2") and (where[1:] >= 0).all()
    assert text == TEXT + OTHER
    counted = torch.from_numpy(places(read, tower))
    counted = counted[counted >= 0]
    assert spelt(checkpoint, lane.tokens(counted).tolist()) == "".join((TEXT + OTHER)[place] for place in counted)


def test_a_decoder_is_asked_the_next_token_and_an_encoder_its_own(tmp_path: Path) -> None:
    for name in ("gpt2", "bert"):
        checkpoint = model(name)
        lane = next(iter(texts(checkpoint, tmp_path).lanes.values()))
        where = torch.tensor([[0, len(TEXT) - 2, len(TEXT) - 1], [len(TEXT), len(TEXT) + len(OTHER) - 1, -1]])
        asked = lane.targets(where)
        signs = [[TEXT[1], TEXT[-1], None], [OTHER[1], None, None]]
        if name == "bert":
            signs = [[TEXT[0], TEXT[-2], TEXT[-1]], [OTHER[0], OTHER[-1], None]]
        for row, wanted in zip(asked.tolist(), signs, strict=True):
            for id, sign in zip(row, wanted, strict=True):
                assert (id == -1) if sign is None else (spelt(checkpoint, [id]) == sign), "texts end where they end"


def test_pairs_are_read_side_by_side_and_the_first_word_is_asked_at_the_start(tmp_path: Path) -> None:
    checkpoint = model("marian", around=True)
    read = pairs(checkpoint, tmp_path, length=24)
    assert len(read) == 9 and list(read.lanes) == ["encoder", "decoder"]
    lines = [line.split("\t") for line in PAIRS.splitlines()]
    tokenizer = checkpoint.tokenizer
    assert tokenizer is not None
    for number, (source, target) in enumerate(lines):
        ids, _ = read.lanes["encoder"].row(number)
        assert ids.tolist() == tokenizer.encode(source)
        ids, where = read.lanes["decoder"].row(number)
        asked = read.lanes["decoder"].targets(torch.from_numpy(where)).tolist()
        assert ids.tolist() == [tokenizer.bos, tokenizer.bos, *asked[1:-1]], "its start, and what stands before texts"
        assert asked[0] == tokenizer.bos and spelt(checkpoint, asked[1:-1]) == target and asked[-1] == tokenizer.eos
    short = pairs(checkpoint, tmp_path, length=16)
    assert max(lane.lengths.max() for lane in short.lanes.values()) <= 16


def test_batches_have_every_row_once_padded_and_not_too_much_at_once(tmp_path: Path) -> None:
    for name in ("gpt2", "marian"):
        checkpoint = model(name)
        read = (texts if name == "gpt2" else pairs)(checkpoint, tmp_path)
        for tower, lane in read.lanes.items():
            seen: list[int] = []
            for batch in read.batches(40):
                ids, where, real = batch.ids[tower], batch.places[tower], batch.real[tower]
                assert max(value.numel() for value in batch.ids.values()) <= 40 or len(ids) == 1
                real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
                assert (where[~real] == -1).all()
                assert torch.equal(lane.tokens(where)[where >= 0], ids[where >= 0])
                seen += where[where >= 0].tolist()
            wanted = places(read, tower)
            assert sorted(seen) == sorted(wanted[wanted >= 0].tolist()) and len(seen) == len(set(seen))


def test_tokens_are_found_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = model("gpt2")
    lane = texts(checkpoint, tmp_path).lanes["decoder"]
    where = torch.tensor([[300, 5, -1], [0, 17, 5]])
    found = lane.tokens(where)
    monkeypatch.setattr("plait.inspection.memory.corpus.BLOCK", 4)
    assert torch.equal(lane.tokens(where), found)
    assert found[0, 2] == -1 and spelt(checkpoint, [int(found[0, 1])]) == TEXT[5]


def test_refusals(tmp_path: Path) -> None:
    files = written(tmp_path)
    with pytest.raises(InspectionError, match="pairs are for an encoder and a decoder"):
        pair_corpus(model("gpt2"), [files["pairs"]], cache=tmp_path)
    plain = model("gpt2")
    with pytest.raises(InspectionError, match="no tokenizer"):
        text_corpus(Checkpoint(architecture=plain.architecture, model=plain.model), [files["text"]])
    with pytest.raises(InspectionError, match="rows of 2 tokens hold no text; give 3 or more"):
        text_corpus(model("bert", around=True), [files["text"]], length=2, cache=tmp_path)
