"""Training: our optimizer step beside the reference library's in a plain loop, or nanoGPT's own, each at its best.

    python benchmarks/training.py SHAPE [--precision float32] [--rounds 9] [--steps 3] [--threads 2]

SHAPE is gpt2 or llama (10 M parameters, Tiny Shakespeare's words), marian (4 + 4 layers, d 128, Multi30k's ragged
sentences), nanogpt-small or nanogpt (with --nanogpt, a folder with its model.py). Both sides have the same weights to
start with (nanoGPT draws its own), the same batches of real tokens,
dropout, clipping and torch's fused AdamW, and a process each; they step in
turn, and what counts are medians and the ratio of each round. A side may be tried in several ways, as in
``--ours eager,compiled --theirs eager,compiled``: its best is compared. Memory is the process's highest, less what it
had before its first step.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from peers.protocol import Worker

SCRIPT = Path(__file__).parent / "peers" / "training_worker.py"
SHAPES = ("gpt2", "llama", "marian", "nanogpt-small", "nanogpt")


class Side:
    """One way of one side."""

    def __init__(self, library: str, way: str, options: argparse.Namespace) -> None:
        self.name, self.ours = f"{library}, {way}", library == "plait"
        self.worker = Worker(sys.executable, SCRIPT, {"OMP_NUM_THREADS": str(options.threads)})
        same = {name: getattr(options, name) for name in ("shape", "precision", "dropout", "nanogpt")}
        self.parameters = self.worker.ask("build", library=library, way=way, **same)["parameters"]
        self.rounds: list[dict[str, Any]] = []

    @property
    def speed(self) -> float:
        """Real targets a second, the median round's."""
        return statistics.median(round["targets"] / round["seconds"] for round in self.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16", "pure_bfloat16"])
    parser.add_argument(
        "--ours",
        default="eager,compiled",
        help="eager, compiled, or torch: without our kernels; -among: a softmax over target words",
    )
    parser.add_argument("--theirs", default="eager,compiled", help="the reference's also with plain- in front")
    parser.add_argument("--dropout", type=float, help="instead of the shape's own")
    parser.add_argument("--nanogpt", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3, help="a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", default="wall", choices=["wall", "cpu"], help="cpu: on a crowded machine, 1 thread")
    options = parser.parse_args()
    peer = "nanogpt" if options.shape.startswith("nanogpt") else "reference"
    sides = [Side("plait", way, options) for way in options.ours.split(",")]
    sides += [Side(peer, way, options) for way in options.theirs.split(",")]
    step(sides, options)
    report(sides, options)


def step(sides: list[Side], options: argparse.Namespace) -> None:
    """Rounds in turn. The first is not counted: there things are compiled."""
    for index in range(options.rounds + 1):
        for side in sides if index % 2 else sides[::-1]:
            told = side.worker.ask("run", first=index * options.steps, count=options.steps)
            told["seconds"] = told[options.clock]
            side.rounds.append(told)
            if not index:
                side.rounds.clear()
                side.worker.ask("forget")


def report(sides: list[Side], options: argparse.Namespace) -> None:
    """Each side, and the best of ours beside the best of theirs."""
    memory = {side.name: side.worker.ask("highest") for side in sides}
    for side in sides:
        print(
            f"{side.name:28} {side.speed:8.0f} real targets/s {memory[side.name]:7.0f} MiB "
            f"{side.parameters / 1e6:7.2f} M, loss {side.rounds[0]['loss']:.3f} to {side.rounds[-1]['loss']:.3f}"
        )
    ours, theirs = (max((s for s in sides if s.ours == mine), key=lambda s: s.speed) for mine in (True, False))
    ratios = sorted(b["seconds"] / a["seconds"] for a, b in zip(ours.rounds, theirs.rounds, strict=True))
    print(f"{options.shape}, {options.precision}, {options.threads} threads, {options.clock} clock; {ours.name}, is")
    print(f"{statistics.median(ratios):.2f} times as fast as {theirs.name} ({ratios[0]:.2f} to {ratios[-1]:.2f}),")
    print(f"with {memory[ours.name] / memory[theirs.name]:.2f} of its memory; medians of {len(ratios)} rounds in turn")


if __name__ == "__main__":
    main()
