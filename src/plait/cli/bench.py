"""``plait bench``: how fast a model runs on this machine, held against what the machine allows, and what it holds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from plait.cli.models import Loading, Running
from plait.cli.printing import Format, as_json, table, working

if TYPE_CHECKING:
    from plait.generation.bench import Bench


def bench(
    model: str,
    /,
    *,
    prompt: int | None = None,
    steps: int = 32,
    batch: tuple[int, ...] = (1, 8),
    rounds: int = 5,
    format: Format = "text",
    running: Annotated[Running, Parameter(name="*")] = Running(),
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Measure the machine's limits, then prefill and decoding, and the share of the limits they reach.

    Tokens are drawn at random. Rounds take turns, with the memory's bandwidth measured in each; medians are printed,
    and the lowest and highest round. What else the machine does meanwhile lowers everything: compare shares.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, package:NAME, or, with --random, a preset or a
        recipe (.toml).
    prompt
        Tokens of the prompt; what is not given is 512, or as many as the model takes.
    steps
        Tokens decoded in a round, behind 16.
    batch
        Rows decoded together; may be given several times.
    rounds
        How often everything is measured.
    format
        json prints everything.
    """
    import torch

    from plait.generation.bench import bench
    from plait.generation.runner import ModelRunner

    if loading.device != "cpu":
        raise ValueError("--device: bench measures the limits of the CPU, and a model on it; leave it out.")
    for name, value in (("threads", running.threads), ("prompt", prompt), ("steps", steps), ("rounds", rounds)):
        if value is not None and value < 1:
            raise ValueError(f"--{name}: {value} is too few; give at least 1.")
    if wrong := [rows for rows in batch if rows < 1]:
        raise ValueError(f"--batch: {wrong[0]} rows are too few; give at least 1.")
    checkpoint, engine = running.open(model, loading)
    threads = running.threads or torch.get_num_threads()
    torch.set_num_threads(threads)  # of the plain model, and of what the engine leaves to torch
    runner = engine or ModelRunner(checkpoint.model)
    if prompt is None:
        prompt = min(512, checkpoint.architecture.max_length or 512)
    with working("measuring"):
        found = bench(runner, threads=threads, batches=batch, prompt=prompt, steps=steps, rounds=rounds)
    as_json(dataclasses.asdict(found)) if format == "json" else say(model, found)


def say(model: str, found: Bench) -> None:
    """The tables."""
    print(f"{model}, {found.threads} {'thread' if found.threads == 1 else 'threads'}\n")
    limits = [
        {"limit": "memory read", "amount": found.bandwidth / 1e9, "unit": "GB/s"},
        {"limit": "float32 products", "amount": found.products / 1e9, "unit": "GFLOP/s"},
    ]
    table(limits)
    print()
    table(
        [
            {
                "work": rate.work,
                "batch": rate.batch,
                "tokens": rate.tokens,
                "tokens/s": round(rate.median, 1),
                "lowest": round(rate.low, 1),
                "highest": round(rate.high, 1),
                "share %": round(100 * rate.share, 1),
                "of the limit of": rate.limit,
            }
            for rate in found.rates
        ]
    )
    print()
    held = {"weights": found.weights, "cache of the largest batch": found.cache, "anonymous at most": found.peak}
    table([{"memory": name, "bytes": amount} for name, amount in held.items() if amount is not None])
