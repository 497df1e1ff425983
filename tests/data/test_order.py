"""Permutations and draws: functions of (seed, epoch, position), complete, well mixed, in constant time and memory."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.data.error import DataError
from plait.data.order import draws, shuffled


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 3000), seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 1000))
def test_every_position_reads_another_sample_and_every_sample_is_read(n: int, seed: int, epoch: int):
    order = shuffled(np.arange(n), n, seed=seed, epoch=epoch)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(n))


@pytest.mark.parametrize("n", [1, 2, 3, 9, 10, 1000, 2**33 + 7, 2**62 - 1])
def test_one_position_is_what_it_is_in_an_array(n: int):
    positions = np.array(sorted({i * (n - 1) // 11 for i in range(12)}))
    order = shuffled(positions, n, seed=3, epoch=1)
    singles = [shuffled(int(position), n, seed=3, epoch=1) for position in positions]
    assert all(isinstance(single, int) for single in singles)
    assert order.tolist() == singles
    assert len(set(singles)) == len(singles) and 0 <= min(singles) <= max(singles) < n
    assert shuffled(positions.reshape(-1, 1), n, seed=3, epoch=1).tolist() == [[single] for single in singles]


def test_another_seed_or_epoch_is_another_order_and_the_same_is_the_same():
    orders = [shuffled(np.arange(100), 100, seed=seed, epoch=epoch).tolist() for seed in range(3) for epoch in range(3)]
    assert all(one != other for one, other in itertools.combinations(orders, 2))
    assert orders[4] == shuffled(np.arange(100), 100, seed=1, epoch=1).tolist()


def test_an_order_is_pinned_so_that_a_run_is_resumed_by_a_later_version():
    assert shuffled(np.arange(10), 10, seed=0, epoch=0).tolist() == [4, 2, 7, 6, 5, 1, 8, 3, 0, 9]
    assert draws(1, 2, 3, "masks").bit_generator.random_raw(2).tolist() == [9238732942671662515, 12187908636422987997]


def test_places_are_equally_likely_and_neighbours_go_apart():
    n, seeds = 7, 2100
    orders = np.array([shuffled(np.arange(n), n, seed=seed, epoch=0) for seed in range(seeds)])
    for place in range(n):
        counts = np.bincount(orders[:, place], minlength=n)
        squares = ((counts - seeds / n) ** 2 / (seeds / n)).sum()
        assert squares < 27.9  # chi squared, 6 degrees of freedom, one in ten thousand
    pairs = Counter(map(tuple, orders[:, :2].tolist()))
    assert len(pairs) == n * (n - 1)
    squares = sum((count - seeds / 42) ** 2 for count in pairs.values()) / (seeds / 42)
    assert squares < 90  # 41 degrees of freedom, two in a hundred thousand
    large = shuffled(np.arange(100_000), 100_000, seed=0, epoch=0)
    correlations = [np.corrcoef(large[:-shift], large[shift:])[0, 1] for shift in (1, 2, 316, 317, 5000)]
    assert np.abs([*correlations, np.corrcoef(large, np.arange(100_000))[0, 1]]).max() < 0.015


def test_a_permutation_of_any_size_takes_the_same_time_and_no_memory():
    def seconds(n: int) -> float:
        start = time.process_time()
        for position in range(200):
            shuffled(position, n, seed=0, epoch=0)
        return time.process_time() - start

    tracemalloc.start()
    shuffled(123, 2**61, seed=0, epoch=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert min(seconds(2**61) for _ in range(3)) < 5 * min(seconds(1000) for _ in range(3))


def test_draws_belong_to_their_place_alone():
    first = draws(7, 0, 5).random(4)
    draws(7, 0, 4).random(100_000)
    assert np.array_equal(draws(7, 0, 5).random(4), first)
    others = [draws(8, 0, 5), draws(7, 1, 5), draws(7, 0, 6), draws(7, 0, 5, "masks"), draws(7, 0, 5, "spans")]
    values = [other.random(4).tolist() for other in others]
    assert len({tuple(value) for value in [*values, first.tolist()]}) == 6


def test_draws_of_neighbours_do_not_overlap_however_many_there_are():
    first = set(draws(0, 0, 0).bit_generator.random_raw(20_000).tolist())
    assert not first & set(draws(0, 0, 1).bit_generator.random_raw(20_000).tolist())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: shuffled(10, 10, seed=0, epoch=0), "position: it is 10, and must be from 0 to 9"),
        (lambda: shuffled(np.array([0, -1]), 10, seed=0, epoch=0), "position: it is -1"),
        (lambda: shuffled(0, 0, seed=0, epoch=0), "n: it is 0"),
        (lambda: shuffled(0, 10, seed=-1, epoch=0), "seed: it is -1"),
        (lambda: draws(0, 2**64, 0), "epoch: it is 18446744073709551616"),
        (lambda: draws(0, 0, 0, "everything"), "purpose: 'everything' has more than eight letters"),
    ],
)
def test_what_does_not_exist_is_refused(call, words: str):
    with pytest.raises(DataError, match=words.replace("^", r"\^")):
        call()
