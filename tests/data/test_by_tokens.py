"""Batches by tokens: each sample once an epoch, none over the limit, little padding, any step at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.data.by_tokens import ByTokens
from plait.data.error import DataError
from plait.data.lines import Tally
from plait.data.paired import Paired
from plait.data.pairs import encode_pairs, read_pairs
from plait.data.samples import Samples
from tests.data.making import in_memory

lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200)


def epoch_of(plan: ByTokens, epoch: int) -> list[list[int]]:
    return [plan.rows(epoch, place).tolist() for place in range(plan.steps_per_epoch)]


@given(lengths=lengths, limit=st.integers(80, 300), total=st.booleans(), jitter=st.sampled_from([0.0, 0.75, 9.0]))
def test_every_epoch_has_each_sample_once_and_no_batch_over_the_limit(lengths, limit: int, total: bool, jitter: float):
    source, target = np.array(lengths).T
    plan = ByTokens(target, source, batch_tokens=limit, counted="total" if total else "target", seed=3, jitter=jitter)
    for epoch in (0, 1, 17):
        batches = epoch_of(plan, epoch)
        assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
        assert all(batches)
        for batch in batches:
            cells = len(batch) * (target[batch].max() + (source[batch].max() if total else 0))
            assert cells <= limit
    in_order = [batch.tolist() for batch in plan.in_order()]
    assert [row for batch in in_order for row in batch] == list(range(len(lengths)))
    assert all(len(batch) * target[batch].max() <= limit for batch in in_order)


def test_epochs_differ_and_seeds_differ_and_the_same_is_the_same():
    target = np.random.default_rng(0).integers(5, 30, 2000)

    def batches(seed: int, epoch: int) -> list[list[int]]:
        plan = ByTokens(target, target[::-1], batch_tokens=500, seed=seed)
        return epoch_of(plan, epoch)

    assert batches(0, 1) == batches(0, 1)
    assert batches(0, 0) != batches(0, 1) != batches(1, 1)
    sets = [{frozenset(batch) for batch in batches(0, epoch)} for epoch in (0, 1)]
    assert len(sets[0] & sets[1]) < len(sets[0]) / 10  # other batches, not the same in another order


def test_tr8_a_step_is_reached_without_those_before_it():
    target = np.random.default_rng(1).integers(3, 30, 500)
    walked = ByTokens(target, batch_tokens=300, seed=5)
    n = walked.steps_per_epoch
    steps = [walked.rows(*divmod(step, n)).tolist() for step in range(3 * n)]
    for step in (2 * n + 7, n - 1, n, 3 * n - 1):
        assert ByTokens(target, batch_tokens=300, seed=5).rows(*divmod(step, n)).tolist() == steps[step]


def test_a_sample_that_never_fits_is_named():
    with pytest.raises(DataError, match="sample 2 has 12 tokens, more than the 10"):
        ByTokens(np.array([3, 4, 12, 5]), batch_tokens=10)
    with pytest.raises(DataError, match="no sample"):
        ByTokens(np.array([], np.int64), batch_tokens=10)


def test_multi30k_has_little_padding(data: Path):
    files = [data / "multi30k" / "tok" / f"train.lc.norm.tok.{side}.gz" for side in ("en", "de")]

    def words(texts):
        return [[*map(len, text.split()), 0] for text in texts]

    pairs = read_pairs(files, tally := Tally())
    source, target = in_memory(encode_pairs(pairs, tally, source=words, target=words, length=100))
    plan = ByTokens(target.lengths, source.lengths, batch_tokens=4000)
    stream = Samples(Paired(source, target, start=1), plan, counts=tally.facts())
    facts = stream.facts()
    assert (facts["samples"], facts["blank"], facts["over_long"]) == (29000, 0, 0)
    assert facts["padding"] < 0.06
    batches = [stream.step(index)[0] for index in range(0, stream.steps_per_epoch, 9)]
    assert max(batch.targets.numel() for batch in batches) <= 4000
    assert sum(int(batch.real.sum()) for batch in batches) > 0.95 * sum(batch.targets.numel() for batch in batches)
