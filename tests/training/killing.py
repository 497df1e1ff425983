"""Kill a run with SIGKILL at random moments, resume it each time, and see that it loses nothing.

    python -m tests.training.killing FOLDER KILLS SEED

Torch is imported once; every run is a forked process. Prints as JSON after how many steps each was killed.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
import warnings
from pathlib import Path

from plait.training.loop import train
from plait.training.optimizers import Optimizer
from plait.training.states import State, newest_state, read_state
from tests.training.making import Samples, loss, model, recipe

STEPS = 24
SETTINGS = recipe(
    run={"steps": STEPS, "dropout": 0.1, "save_every": 1, "keep": 2, "average": "last", "average_every": 2},
    optimizer={"kind": "muon"},
)


def run(out: Path, report: int) -> None:
    """Train to the end, and write the number of every step whose state is saved."""
    for step in train(model(), Samples(), SETTINGS, loss=loss, out=out, resume=True):
        os.write(report, f"{step.index}\n".encode())


def forked(out: Path, moment: float | None) -> tuple[int, bool]:
    """A run in a process of its own, killed ``moment`` seconds after its first step: the last step that it reported to
    be saved, and whether it came to its end."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = 1
        try:
            run(out, write)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    heard = os.read(read, 1)
    if moment is not None:
        select.select([], [], [], moment)
        os.kill(child, signal.SIGKILL)
    while more := os.read(read, 1 << 16):
        heard += more
    os.close(read)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the run failed"
    whole = heard.rpartition(b"\n")[0].split()
    return int(whole[-1]) if whole else 0, not os.WIFSIGNALED(status)


def same(a: State, b: State) -> bool:
    """Bit for bit."""
    return all(
        {name: value.tolist() for name, value in getattr(a, part).items()}
        == {name: value.tolist() for name, value in getattr(b, part).items()}
        for part in ("model", "optimizer", "averages")
    )


def main(folder: Path, kills: int, seed: int) -> list[int]:
    """Kill ``kills`` times, each time in the midst of a run, and resume; the steps after which it was killed."""
    Optimizer(model().named_parameters(), SETTINGS.optimizer)  # torch then imports a lot, here once for all
    draw, died, turn = random.Random(seed), [], 0
    began = time.perf_counter()
    forked(folder / "whole", None)
    length = time.perf_counter() - began
    while len(died) < kills:
        out = folder / f"killed-{turn}"
        saved, ended = forked(out, draw.uniform(0, 0.3 * length))
        state = newest_state(out / "states")
        assert state is not None and state.step >= saved, f"step {saved} was saved, and is lost"
        if not ended:
            died.append(state.step)
        if not ended and len(died) < kills:
            continue
        forked(out, None)
        last = f"states/step-{STEPS:06}"
        assert same(read_state(folder / "whole" / last), read_state(out / last)), "the weights differ"
        left = sorted(path.name for path in (out / "states").iterdir())
        assert left == [f"step-{STEPS - 1:06}", f"step-{STEPS:06}"], left
        turn += 1
    return died


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
