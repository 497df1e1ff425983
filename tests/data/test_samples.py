"""Streams of samples: ranks, micro-batches, epochs and evaluations deal out each sample once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.data.batch import Batch
from plait.data.by_tokens import ByTokens
from plait.data.contrastive import Contrastive
from plait.data.error import DataError
from plait.data.given import Given
from plait.data.masked import Masked
from plait.data.rows import Ragged
from plait.data.samples import ByRows, Plan, Samples


def numbered(n: int, *, length: int = 3) -> Ragged:
    """Rows that begin with their number, of different lengths."""
    return Ragged.of([[row + 1] * (length + row % 3) for row in range(n)])


def stream(n: int, plan: Plan, **options) -> Samples:
    rows = numbered(n)
    return Samples(Given(rows, rows), plan, **options)


def numbers(batches: Iterable[Batch]) -> list[int]:
    return [int(row[0]) - 1 for batch in batches for row in batch.tokens]


def test_tr8_a_run_that_is_resumed_in_an_epoch_reads_the_rest_of_it_and_the_same_next_one():
    unbroken = stream(20, ByRows(20, 2, seed=7))
    assert unbroken.steps_per_epoch == 10
    steps = [numbers(unbroken.step(index)) for index in range(30)]
    epochs = [[row for step in steps[start : start + 10] for row in step] for start in (0, 10, 20)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != sorted(epochs[0])  # shuffled, each time anew
    resumed = stream(20, ByRows(20, 2, seed=7))
    assert [numbers(resumed.step(index)) for index in range(13, 30)] == steps[13:]


@given(n=st.integers(1, 24), batch=st.integers(3, 30), micro=st.integers(1, 5), world=st.integers(1, 5))
def test_ranks_and_micro_batches_together_have_the_rows_of_one(n: int, batch: int, micro: int, world: int):
    plans: list[Plan] = [ByRows(n, batch), ByTokens(numbered(n).lengths, batch_tokens=5 * batch)]
    for plan in plans:
        whole, parts = stream(n, plan), stream(n, plan, micro_batches=micro)
        for index in range(whole.steps_per_epoch + 1):
            (one,) = whole.step(index)
            dealt = [parts.step(index, rank=rank, world=world) for rank in range(world)]
            assert sorted(numbers(one_rank for rank in dealt for one_rank in rank)) == sorted(numbers([one]))
            assert all(len(rank) <= micro and all(len(batch.tokens) for batch in rank) for rank in dealt)
            real = sum(int(batch.real.sum()) for rank in dealt for batch in rank)
            assert real == int(one.real.sum())


def test_no_step_of_an_epoch_is_a_small_remainder():
    plan = ByRows(101, 20)
    sizes = [len(plan.rows(0, place)) for place in range(plan.steps_per_epoch)]
    assert len(sizes) == 6 and max(sizes) - min(sizes) <= 1 and sum(sizes) == 101


@pytest.mark.parametrize("plan", [ByRows(10, 4), ByRows(10, 3), ByTokens(numbered(10).lengths, batch_tokens=20)])
@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_tr20_an_evaluation_has_each_sample_once_over_all_ranks(plan: Plan, world: int):
    ranks = [numbers(stream(10, plan).evaluation(rank=rank, world=world)) for rank in range(world)]
    assert sorted(row for rank in ranks for row in rank) == list(range(10))
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 1
    if world == 1:
        assert ranks[0] == list(range(10))  # in order


def test_noise_belongs_to_a_row_wherever_it_is():
    rows = Ragged.of(np.random.default_rng(0).integers(5, 90, (30, 20)).tolist())
    masked = Masked(rows=rows, mask=4, vocab_size=100, specials=range(5))

    def seen(stream: Samples, index: int, world: int) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
        batches = [batch for rank in range(world) for batch in stream.step(index, rank=rank, world=world)]
        return {
            (tuple(tokens), tuple(targets))
            for batch in batches
            for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True)
        }

    one = seen(Samples(masked, ByRows(30, 30)), 0, 1)
    assert seen(Samples(masked, ByRows(30, 30), micro_batches=4), 0, 3) == one
    assert not one & seen(Samples(masked, ByRows(30, 30)), 1, 1)  # another epoch
    evaluated = [[batch.tokens.tolist() for batch in Samples(masked, ByRows(30, 7)).evaluation()] for _ in range(2)]
    assert evaluated[0] == evaluated[1]


def test_groups_stay_whole_on_any_number_of_ranks():
    rows = numbered(24)
    stream = Samples(Contrastive(rows, rows), ByRows(24, 12), micro_batches=3)

    def groups(world: int) -> list[list[int]]:
        dealt = [stream.step(1, rank=rank, world=world) for rank in range(world)]
        return sorted(numbers([batch]) for rank in dealt for batch in rank)

    assert [len(group) for group in groups(1)] == [8, 8, 8]
    assert groups(1) == groups(2) == groups(5)
    assert stream.step(0, rank=4, world=5) == []


def test_what_makes_no_step_is_refused():
    for make in (lambda: ByRows(0, 3), lambda: ByRows(3, 0), lambda: stream(3, ByRows(3, 1), micro_batches=0)):
        with pytest.raises(DataError, match="must be 1 or more"):
            make()


def test_documents_are_cut_into_pieces():
    rows = Ragged.of([range(7), range(10, 12), [], range(20, 21)])
    found = rows.pieces(3)
    assert [found[row].tolist() for row in range(len(found))] == [[0, 1, 2], [3, 4, 5], [6], [10, 11], [20]]
    assert rows.pieces(3, least=2).lengths.tolist() == [3, 3, 2]
    joined = rows.pieces(4, join=True, least=3)
    assert [joined[row].tolist() for row in range(len(joined))] == [[0, 1, 2, 3], [4, 5, 6, 10]]
    with pytest.raises(DataError, match="leave out some"):
        rows.pieces(3, least=2).pieces(2, join=True)
    with pytest.raises(DataError, match="no document of 8"):
        rows.pieces(9, least=8)
