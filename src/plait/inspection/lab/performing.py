"""Performing: experiments one after the other, their trials side by side, a process and a thread for each core.

One thread computes a trial whatever the machine, so what it finds does not depend on how many cores there are.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from multiprocessing.synchronize import Event
from typing import Any

import torch

from plait.inspection.lab.experiment import Experiment, Result, Trial
from plait.inspection.lab.keeping import Kept


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Something is done: ``seconds`` of work, of one core; where an experiment came to its end, its ``result``."""

    experiment: Experiment
    seconds: float
    result: Result | None = None


def perform(experiments: Sequence[Experiment], kept: Kept, *, workers: int | None = None) -> Iterator[Progress]:
    """Make every trial that is not kept yet, and run each experiment once all of its own are there.

    Args:
        experiments: in the order in which those that train nothing are run; the others end when they end.
        kept: where trials are looked for, and kept.
        workers: processes; none: one for each core; 1: this process alone.
    """
    found: dict[str, dict[str, Any]] = {one.name: {} for one in experiments}
    missing: list[tuple[Experiment, Trial]] = []
    for one in experiments:
        for trial in one.trials:
            value = kept.load(one.name, trial.name)
            if value is None:
                missing.append((one, trial))
            else:
                found[one.name][trial.name] = value
                yield Progress(experiment=one, seconds=trial.seconds)
    made = _made(sorted(missing, key=lambda pair: -pair[1].seconds), workers or cores())
    try:
        next(made, None)  # those that train begin, and the others run meanwhile
        for one in experiments:
            if len(found[one.name]) == len(one.trials):
                yield Progress(experiment=one, seconds=1, result=one.run(found[one.name]))
        for one, trial, value in filter(None, made):
            kept.store(one.name, trial.name, value)
            found[one.name][trial.name] = value
            yield Progress(experiment=one, seconds=trial.seconds)
            if len(found[one.name]) == len(one.trials):
                yield Progress(experiment=one, seconds=1, result=one.run(found[one.name]))
    finally:
        made.close()


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _made(trials: Sequence[tuple[Experiment, Trial]], workers: int) -> Generator[tuple[Experiment, Trial, Any] | None]:
    """Nothing, once they have begun; then each trial with what it found, when it has."""
    workers = min(workers, len(trials))
    if workers < 2:
        yield None
        for one, trial in trials:
            yield one, trial, alone(trial)
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(stop,))
    try:
        running: dict[Future[Any], tuple[Experiment, Trial]] = {
            pool.submit(_make, one.name, trial.name): (one, trial) for one, trial in trials
        }
        yield None
        for future in as_completed(running):
            yield (*running[future], future.result())
    except BaseException:  # nobody waits for what is under way
        stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def alone(trial: Trial) -> Any:
    """A trial in this process, on one thread; bars of what it reads are not shown."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with redirect_stderr(StringIO()):
            return trial.make()
    finally:
        torch.set_num_threads(threads)


def _begin(stop: Event) -> None:
    """A process that makes trials ends when it is told to, or when the one that asked for them has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells it to the other, too

    def follow() -> None:
        while not stop.wait(0.5) and parent.is_alive():
            pass
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _make(experiment: str, trial: str) -> Any:
    """A trial by its name, in a process of its own."""
    from plait.inspection.lab.experiments import EXPERIMENTS

    one = next(one for one in EXPERIMENTS if one.name == experiment)
    return alone(next(other for other in one.trials if other.name == trial))
