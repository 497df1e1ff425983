"""bench: rates are consistent with their limits and with the account; a model that cannot be timed is refused."""

from __future__ import annotations

import dataclasses
import mmap

import pytest
import torch

import plait
from plait.generation import GenerationError
from plait.generation.bench import READ_BEFORE, Memory, anonymous, bench, weight_bytes
from plait.generation.machine import Reading, product_rate
from plait.generation.runner import ModelRunner

TINY = plait.Architecture(vocab_size=50, d_model=32, n_heads=4, d_ff=64, n_decoder_layers=2, position="rope")


class Counting(ModelRunner):
    """Says how many tokens it read, by kind of call and rows."""

    def __init__(self, model: plait.Transformer) -> None:
        super().__init__(model)
        self.read: list[tuple[str, tuple[int, ...]]] = []

    def prefill(self, tokens: torch.Tensor, cache: object, **options: object) -> torch.Tensor:
        self.read.append(("prefill", tuple(tokens.shape)))
        return super().prefill(tokens, cache, **options)

    def step(self, tokens: torch.Tensor, cache: object) -> torch.Tensor:
        self.read.append(("step", tuple(tokens.shape)))
        return super().step(tokens, cache)


@pytest.fixture
def runner() -> Counting:
    return Counting(plait.Transformer(TINY).eval())


def test_every_round_reads_what_is_said(runner: Counting):
    found = bench(runner, threads=1, batches=(1, 3), prompt=20, steps=5, rounds=2, reading=Reading(2**16))
    times = 2 + 1  # one to warm up
    assert runner.read.count(("prefill", (1, 20))) == times
    assert runner.read.count(("prefill", (3, READ_BEFORE))) == times
    assert runner.read.count(("step", (3,))) == runner.read.count(("step", (1,))) == 5 * times
    assert [(rate.work, rate.batch, rate.tokens) for rate in found.rates] == [
        ("prefill", 1, 20),
        ("decode", 1, 5),
        ("decode", 3, 15),
    ]


def test_shares_are_the_least_time_in_the_time_taken(runner: Counting):
    found = bench(runner, threads=1, batches=(2,), prompt=20, steps=5, rounds=1, reading=Reading(2**16))
    prefill, decode = found.rates
    assert found.weights == 4 * plait.account(TINY).parameters == weight_bytes(runner)
    assert found.cache == plait.account(TINY).cache_bytes(READ_BEFORE + 5, batch=2, dtype="fp32")
    flops = plait.account(TINY).flops(20, last_only=True).total
    assert prefill.share == pytest.approx(flops / found.products / (20 / prefill.median))
    least = (found.weights + found.cache) * 5 / found.bandwidth
    assert decode.share == pytest.approx(least / (10 / decode.median))
    assert all(rate.low <= rate.median <= rate.high for rate in found.rates)


def test_limits_are_of_this_machine():
    assert 1e7 < Reading(2**20).bandwidth(1) < 1e13
    assert 1e6 < product_rate(1, side=64) < 1e15


def test_threads_are_put_back():
    before = torch.get_num_threads()
    Reading(2**16).bandwidth(before + 1)
    product_rate(before + 1, side=8)
    assert torch.get_num_threads() == before


def test_the_peak_is_seen():
    if anonymous() is None:
        pytest.skip("this system does not say how much memory is anonymous")
    with Memory() as memory:
        # Memory of its own, which no allocator had kept, and which the watcher has to see before it is gone.
        held = mmap.mmap(-1, 2**26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for page in range(0, 2**26, mmap.PAGESIZE):
            held[page] = 1
        for _ in range(2000):
            if memory.peak is not None and memory.peak > 0.9 * 2**26:
                break
            memory._done.wait(0.01)
        held.close()
    assert memory.peak is not None and memory.peak > 0.9 * 2**26


def test_what_does_not_write_from_a_prompt_is_refused():
    encoder = plait.Architecture(vocab_size=50, d_model=32, n_heads=4, d_ff=64, n_encoder_layers=1, head=None)
    with pytest.raises(GenerationError, match="this encoder does not write"):
        bench(ModelRunner(plait.Transformer(encoder)), threads=1)


def test_a_prompt_longer_than_the_model_is_refused():
    short = dataclasses.replace(TINY, max_length=16)
    with pytest.raises(GenerationError, match="512 tokens are more than this model's 16"):
        bench(ModelRunner(plait.Transformer(short)), threads=1)
