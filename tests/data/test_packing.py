"""Packing: every target once an epoch, by any number of processes and micro-batches; documents apart; steps at once."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from plait.architecture import Architecture, Rope
from plait.data.batch import UNCOUNTED, Batch
from plait.data.error import DataError
from plait.data.packing import CausalStream
from plait.data.shards import Footer, Shard
from plait.data.tokens import Tokens
from tests.data.making import END, store
from tests.models import far, random_model

TEXTS = ["the first", "a", "a longer document, which goes on for more than a row", "b", "c", "of the same words"]
PACKINGS = ("documents", "stream", "windows")


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return store(tmp_path, TEXTS, shard=20)


def numbered(n: int, **more) -> Tokens:
    """Tokens that are their own places, one document."""
    footer = Footer(key="", number=0, type="uint32", tokens=n, documents=1, pieces=1, checksum=0)
    shard = Shard(footer, np.arange(n, dtype=np.uint32), np.zeros(1, np.int64))
    bounds = np.array([0, n])
    return Tokens(shards=[shard], bounds=bounds, documents_before=np.array([0, 1]), counts={}, start=0, stop=n, **more)


def pairs(batches: Iterable[Batch]) -> list[tuple[str, int]]:
    """Every target that counts, with all that its document says before it in the row."""
    found: list[tuple[str, int]] = []
    for batch in batches:
        numbers = torch.ones_like(batch.tokens) if batch.mask is None else batch.mask
        for tokens, targets, documents in zip(batch.tokens, batch.targets, numbers, strict=True):
            for place in (targets != UNCOUNTED).nonzero().flatten().tolist():
                inside = (documents == documents[place]) & (torch.arange(len(tokens)) <= place)
                found.append((bytes(tokens[inside].tolist()).decode(), int(targets[place])))
    return found


def rows(batches: Iterable[Batch]) -> list[tuple[list[int], list[int]]]:
    """Tokens and targets of every row."""
    return [
        (tokens, targets)
        for batch in batches
        for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True)
    ]


def epoch(stream: CausalStream, first: int = 0, **dealt) -> list[Batch]:
    return [batch for index in range(first, first + stream.steps_per_epoch) for batch in stream.step(index, **dealt)]


# Each once


@pytest.mark.parametrize("length", [1, 7, 16, 85, 86, 87, 500])
def test_a_stream_asks_for_every_token_but_the_first_once(tokens: Tokens, length: int):
    n = len(tokens)
    assert n == 87
    stream = CausalStream(tokens=tokens, length=length, rows=1, packing="stream")
    for batches in (epoch(stream), stream.evaluation()):
        asked = [target for _, targets in rows(batches) for target in targets if target != UNCOUNTED]
        assert sorted(asked) == sorted(tokens.read(1, n).tolist())
    assert all(batch.tokens.shape == (1, min(length, n - 1)) and batch.mask is None for batch in epoch(stream))


@pytest.mark.parametrize("length", [1, 7, 16, 500])
def test_documents_ask_for_every_token_but_the_first_of_each_once(tokens: Tokens, length: int):
    stream = CausalStream(tokens=tokens, length=length, rows=1)
    expected = sorted(byte for text in TEXTS for byte in [*text[1:].encode(), END])
    for batches in (epoch(stream), list(stream.evaluation())):
        assert sorted(target for _, target in pairs(batches)) == expected
        for before, target in pairs(batches):  # what the model sees is the text up to there, of one document
            assert any(before + chr(target) in text + chr(END) for text in TEXTS)
    seen = dict.fromkeys(before for before, _ in pairs(epoch(stream)))
    assert length < 500 or all(text in seen for text in TEXTS)


def test_targets_are_the_next_tokens_and_evaluation_is_in_order():
    stream = CausalStream(tokens=numbered(31), length=8, rows=3, packing="stream")
    found = rows(stream.evaluation())
    assert [tokens[0] for tokens, _ in found] == [0, 8, 16, 22]
    assert found[0] == (list(range(8)), list(range(1, 9)))
    assert found[3] == (list(range(22, 30)), [UNCOUNTED] * 2 + list(range(25, 31)))
    assert [len(batch.tokens) for batch in stream.evaluation()] == [3, 1]
    for tokens, targets in rows(stream.step(0)):
        assert all(target in (token + 1, UNCOUNTED) for token, target in zip(tokens, targets, strict=True))


def test_tr4_the_end_of_a_document_is_asked_also_where_its_id_fills_batches_elsewhere(tmp_path: Path):
    """Nothing is masked for its id: of three documents three ends are asked."""
    tokens = store(tmp_path, ["abc", "d", "efgh"], after=(0,))  # 0 is the id of padding of many vocabularies
    stream = CausalStream(tokens=tokens, length=5, rows=1)
    assert [target for _, target in pairs(epoch(stream))].count(0) == 3
    assert all(bool((batch.mask > 0).all()) for batch in epoch(stream) if batch.mask is not None)


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_tr20_processes_together_evaluate_every_target_once(tokens: Tokens, world: int):
    stream = CausalStream(tokens=tokens, length=9, rows=4, evaluation_rows=2)
    assert stream.blocks == 10
    alone = sorted(pairs(stream.evaluation()))
    together = [pair for rank in range(world) for pair in pairs(stream.evaluation(rank=rank, world=world))]
    assert sorted(together) == alone


# Steps


@pytest.mark.parametrize("packing", PACKINGS)
def test_ranks_and_micro_batches_have_the_rows_of_one(tokens: Tokens, packing):
    whole = CausalStream(tokens=tokens, length=9, rows=7, packing=packing, seed=3)
    for index in (0, 1, 5):
        (alone,) = whole.step(index)
        assert alone.tokens.shape == (7, 9)
        for world in (1, 2, 3, 9):
            for parts in (1, 2, 7, 8):
                stream = CausalStream(tokens=tokens, length=9, rows=7, packing=packing, seed=3, micro_batches=parts)
                dealt = [stream.step(index, rank=rank, world=world) for rank in range(world)]
                assert [len(batches) for batches in dealt] == [
                    min(parts, len(range(rank, 7, world))) for rank in range(world)
                ]
                found = rows(batch for batches in dealt for batch in batches)
                assert sorted(found) == sorted(rows([alone]))


def test_tr8_going_on_within_an_epoch_reads_what_is_left_and_then_the_same_next_epoch():
    tokens = numbered(20 * 4 + 1)
    unbroken = CausalStream(tokens=tokens, length=4, rows=2, packing="stream", seed=5)
    assert (unbroken.blocks, unbroken.steps_per_epoch) == (20, 10)
    epochs = [[row[0][0] for row in rows(epoch(unbroken, 10 * number))] for number in range(4)]
    for order in epochs:
        assert sorted(order) == list(range(0, 80, 4)) and order != sorted(order)
    assert len({tuple(order) for order in epochs}) == 4
    resumed = CausalStream(tokens=tokens, length=4, rows=2, packing="stream", seed=5)
    left = [row[0][0] for index in range(13, 40) for row in rows(resumed.step(index))]
    assert left == [*epochs[1][6:], *epochs[2], *epochs[3]]


def test_epochs_follow_each_other_without_a_gap_where_rows_do_not_divide_them():
    stream = CausalStream(tokens=numbered(10 * 4 + 1), length=4, rows=7, packing="stream")
    read = [row[0][0] for index in range(10) for row in rows(stream.step(index))]
    assert stream.steps_per_epoch == 2
    assert all(sorted(read[at : at + 10]) == list(range(0, 40, 4)) for at in range(0, 70, 10))
    few = CausalStream(tokens=numbered(9), length=4, rows=7, packing="stream")  # a step of several epochs
    assert sorted(row[0][0] for row in rows(few.step(0))) in ([0] * 3 + [4] * 4, [0] * 4 + [4] * 3)


@pytest.mark.parametrize("packing", PACKINGS)
def test_tr9_a_step_is_the_same_whatever_was_read_before_and_draws_from_no_ones_numbers(tokens: Tokens, packing):
    """The data's half of it: reading ahead, or leaving steps out, moves nothing."""
    stream = CausalStream(tokens=tokens, length=9, rows=4, packing=packing)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    in_order = [rows(stream.step(index)) for index in range(12)]
    again = CausalStream(tokens=tokens, length=9, rows=4, packing=packing)
    assert [rows(again.step(index)) for index in reversed(range(12))] == in_order[::-1]
    assert torch.equal(torch_state, torch.get_rng_state()) and np.random.get_state()[1].tolist() == numpy_state
    assert in_order[0] != in_order[1]
    other = CausalStream(tokens=tokens, length=9, rows=4, packing=packing, seed=1)
    assert rows(other.step(0)) != in_order[0]


def test_windows_are_anywhere_and_equally_likely():
    stream = CausalStream(tokens=numbered(14), length=4, rows=1000, packing="windows")
    (batch,) = stream.step(0)
    counts = np.bincount(batch.tokens[:, 0].numpy(), minlength=10)
    assert len(counts) == 10 and counts.min() > 60  # of 100
    assert all(targets == [token + 1 for token in tokens] for tokens, targets in rows([batch]))
    assert stream.steps_per_epoch == 1
    shortest = CausalStream(tokens=numbered(5), length=4, rows=2, packing="windows")
    assert [tokens for tokens, _ in rows(shortest.step(3))] == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_late_step_of_a_large_set_takes_no_longer_than_the_first_of_a_small_one(packing):
    def seconds(n: int, index: int) -> float:
        shard = Shard(
            Footer(key="", number=0, type="uint16", tokens=n, documents=n // 50, pieces=1, checksum=0),
            np.broadcast_to(np.uint16(3), (n,)),
            np.arange(0, 50 * 200, 50),
        )
        bounds, before = np.array([0, n]), np.array([0, 200])
        tokens = Tokens(shards=[shard], bounds=bounds, documents_before=before, counts={}, start=0, stop=n)
        stream = CausalStream(tokens=tokens, length=16, rows=4, packing=packing)
        start = time.process_time()
        for number in range(20):
            stream.step(index + number)
        return time.process_time() - start

    small = min(seconds(10_000, 0) for _ in range(3))
    assert min(seconds(10**12, 10**10) for _ in range(3)) < 5 * small + 0.01


# Documents apart, in a model


@pytest.mark.parametrize("position", ["rope", "learned"])
def test_mk14_a_packed_document_is_what_it_is_alone(tmp_path: Path, position):
    """Loss of packed rows = loss of each document by itself, and no target across an edge."""
    architecture = Architecture(
        vocab_size=256,
        d_model=16,
        n_heads=4,
        n_kv_heads=2,
        d_ff=20,
        n_decoder_layers=2,
        position=position,
        rope=Rope(theta=100.0) if position == "rope" else None,
        max_length=70 if position == "learned" else None,
    )
    model = random_model(architecture)
    tokens = store(tmp_path, ["abc", "defg", "x", "hijklmn"])
    (batch,) = CausalStream(tokens=tokens, length=70, rows=1).evaluation()
    packed, count = _loss(model, batch)
    alone = counted = 0.0
    for text in ("abc", "defg", "x", "hijklmn"):
        ids = torch.tensor([[*text.encode(), END]])
        loss, number = _loss(model, Batch(tokens=ids[:, :-1], targets=ids[:, 1:]))
        alone, counted = alone + loss, counted + number
    assert count == counted == 15
    assert far(packed, alone) < 1e-9 * counted
    changed = batch.tokens.clone()
    changed[0, :3] = torch.tensor([*b"xyz"])
    before, after = (model(ids, mask=batch.mask)[0, 4:] for ids in (batch.tokens, changed))
    assert torch.equal(before, after)
    (bare,) = CausalStream(tokens=tokens, length=70, rows=1, packing="stream").evaluation()
    assert far(_loss(model, bare)[0], alone) > 1e-3, "without borders it must differ, or this tests nothing"


def _loss(model, batch: Batch):
    logits = model(batch.tokens, **batch.inputs)
    loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=UNCOUNTED, reduction="sum")
    return loss.detach(), int(batch.real.sum())


def test_one_document_alone_needs_no_mask(tmp_path: Path):
    batches = epoch(CausalStream(tokens=store(tmp_path, ["one document of some length"]), length=5, rows=2))
    assert all(batch.mask is None for batch in batches)


def test_facts_and_refusals(tokens: Tokens):
    facts = CausalStream(tokens=tokens, length=9, rows=4).facts()
    expected = {"documents": 6, "tokens": 87, "bytes": 81, "blank": 0, "over_long": 0, "bad": 0, "padding": 0.0}
    assert expected.items() <= facts.items()
    for options, words in [
        ({"length": 0}, "length: it is 0"),
        ({"rows": 0}, "rows: it is 0"),
        ({"micro_batches": 0}, "micro_batches: it is 0"),
        ({"packing": "document"}, "'document' is not one of documents, stream, windows"),
        ({"tokens": numbered(1)}, "1 token in all leaves nothing to predict"),
    ]:
        with pytest.raises(DataError, match=words):
            CausalStream(**{"tokens": tokens, "length": 9, "rows": 4, **options})
