"""Bench: how fast a runner reads prompts and writes tokens, held against what the machine allows, and what it holds.

The limits are measured first, and again before every round, because a machine that is shared has others every second.
A token at batch b has the bandwidth's limit b * bandwidth / bytes of the weights and caches, a prompt the products'.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from plait.account import account
from plait.generation.errors import GenerationError
from plait.generation.machine import Reading, product_rate
from plait.generation.runner import Runner

READ_BEFORE = 16  # tokens in the cache before decoding is timed


@dataclass(frozen=True)
class Rate:
    """Tokens a second of one kind of work, over the rounds, and the share of its limit that the median round reached.

    ``limit`` names it: ``"memory"`` for decoding, ``"float32 products"`` for a prompt, which weights of
    fewer bits may exceed.
    """

    work: str
    batch: int
    tokens: int  # read in one round
    median: float
    low: float
    high: float
    limit: str
    share: float


@dataclass(frozen=True)
class Bench:
    """What was measured. Bytes and seconds; rates are medians over the rounds.

    ``weights`` is what the runner holds to multiply with, all of which a token reads; ``cache`` is that of the largest
    batch at its end; ``peak`` the most anonymous memory that one round took, beyond what the process had before
    (``None`` where the system does not say).
    """

    threads: int
    bandwidth: float  # bytes a second
    products: float  # float32 operations a second
    rates: tuple[Rate, ...]
    weights: int
    cache: int
    peak: int | None


def bench(
    runner: Runner,
    *,
    threads: int,
    batches: Sequence[int] = (1, 8),
    prompt: int = 512,
    steps: int = 32,
    rounds: int = 5,
    reading: Reading | None = None,
) -> Bench:
    """Measure prompts of ``prompt`` tokens, and ``steps`` tokens at every batch, in ``rounds`` that take turns.

    ``threads``: how many the runner was given; the limits are measured with as many. ``GenerationError`` where the
    model is no decoder, or its rows are too short.
    """
    a = runner.architecture
    if a.kind != "decoder" or a.head != "language":
        raise GenerationError(f"bench: it times decoders that write; this {a.kind} does not write from a prompt alone.")
    longest = max(prompt, READ_BEFORE + steps)
    if a.max_length is not None and longest > a.max_length:
        raise GenerationError(f"bench: {longest} tokens are more than this model's {a.max_length}; ask for fewer.")
    memory, reading = Memory(), reading or Reading()
    counts = account(a)
    generator = torch.Generator().manual_seed(0)
    works: list[tuple[str, int, int, Callable[[], tuple[float, int]]]] = []
    tokens = torch.randint(a.vocab_size, (1, prompt), generator=generator)
    works.append(("prefill", 1, prompt, lambda: _prefill(runner, tokens)))
    for batch in batches:
        rows = torch.randint(a.vocab_size, (batch, READ_BEFORE + steps), generator=generator)
        works.append(("decode", batch, batch * steps, lambda rows=rows: _decode(runner, rows)))

    products, bandwidths, held = 0.0, list[float](), 0
    times: list[list[float]] = [[] for _ in works]
    shares: list[list[float]] = [[] for _ in works]
    with torch.inference_mode():
        with memory:  # not while time is taken: looking takes some itself
            for _, _, _, work in works:  # the first time, memory is fetched and libraries prepare themselves
                work()
        weights = weight_bytes(runner)
        for _ in range(rounds):
            bandwidths.append(reading.bandwidth(threads))
            products = max(products, product_rate(threads))
            for i, (name, batch, n, work) in enumerate(works):
                seconds, cache = work()
                held = max(held, cache)
                times[i].append(n / seconds)
                if name == "decode":
                    least = (weights + cache) * (n // batch) / bandwidths[-1]  # every step reads all of it
                else:
                    least = counts.flops(n, last_only=True).total / products
                shares[i].append(least / seconds)
    rates = tuple(
        Rate(
            work=name,
            batch=batch,
            tokens=n,
            median=statistics.median(rate),
            low=min(rate),
            high=max(rate),
            limit="memory" if name == "decode" else "float32 products",
            share=statistics.median(share),
        )
        for (name, batch, n, _), rate, share in zip(works, times, shares, strict=True)
    )
    return Bench(threads, statistics.median(bandwidths), products, rates, weights, held, memory.peak)


def weight_bytes(runner: Any) -> int:
    """Bytes of the weights as the runner holds them, each once: what it says itself, or its model's tensors."""
    if hasattr(runner, "weight_bytes"):
        return runner.weight_bytes
    return sum(p.numel() * p.element_size() for p in runner.model.parameters())


def _prefill(runner: Runner, tokens: torch.Tensor) -> tuple[float, int]:
    cache = runner.cache(1, capacity=tokens.shape[1])
    start = time.perf_counter()
    runner.prefill(tokens, cache)
    return time.perf_counter() - start, cache.nbytes


def _decode(runner: Runner, rows: torch.Tensor) -> tuple[float, int]:
    cache = runner.cache(len(rows), capacity=rows.shape[1])
    runner.prefill(rows[:, :READ_BEFORE], cache)
    columns = [column.contiguous() for column in rows[:, READ_BEFORE:].T]
    start = time.perf_counter()
    for column in columns:
        runner.step(column, cache)
    return time.perf_counter() - start, cache.nbytes


class Memory:
    """The most anonymous memory this process has between enter and exit, beyond what it had; looked at every 5 ms."""

    def __init__(self) -> None:
        self.peak: int | None = None
        self._done = threading.Event()

    def __enter__(self) -> Memory:
        self._start = anonymous()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while self._start is not None:
            now = anonymous() or 0
            self.peak = max(self.peak or 0, now - self._start)
            if self._done.wait(0.005):
                return


def anonymous(process: int | str = "self") -> int | None:
    """Bytes of a process's memory that no file stands behind (RssAnon of Linux), ``None`` where that is not said."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return None
    found = [line.split() for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(found[0][1]) * 1024 if found else None
