"""plait as a worker: the engine, or with ``kind`` "plain" the plain model. Run by the Python that plait is in."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from typing import Any

import torch
from protocol import packed, serve

import plait
from plait.generation.runner import ModelRunner

SPARE = 8  # tokens of room beyond what is read


class Session:
    """One open checkpoint, and a runner for each number of threads that was asked for."""

    def __init__(self) -> None:
        self.kind = ""
        self.checkpoint: plait.Checkpoint | None = None
        self.runners: dict[int, Any] = {}

    def load(self, path: str, kind: str) -> dict[str, Any]:
        """Open a file; what it holds. The engine packs the weights as they are stored, without a model in between."""
        self.kind, self.runners = kind, {}
        self.checkpoint = plait.load(path, lazy=kind == "engine")
        a = self.checkpoint.architecture
        return {"parameters": plait.account(a).parameters, "vocab": a.vocab_size}

    @torch.inference_mode()
    def decode(self, prompt: list[list[int]], follow: list[list[int]], threads: int) -> float:
        """Seconds to read ``follow``, a token of every row at a time, behind ``prompt``."""
        runner, cache = self._begin(prompt, follow, threads)
        steps = [torch.tensor(tokens) for tokens in zip(*follow, strict=True)]
        start = time.perf_counter()
        for tokens in steps:
            runner.step(tokens, cache)
        return time.perf_counter() - start

    @torch.inference_mode()
    def prefill(self, prompt: list[list[int]], threads: int) -> float:
        """Seconds to read ``prompt``."""
        runner, tokens = self._runner(threads), torch.tensor(prompt)
        cache = runner.cache(len(prompt), capacity=len(prompt[0]) + SPARE)
        start = time.perf_counter()
        runner.prefill(tokens, cache)
        return time.perf_counter() - start

    @torch.inference_mode()
    def logits(self, prompt: list[list[int]], follow: list[list[int]], threads: int) -> str:
        """What it says at the end, a row for each of ``prompt``."""
        runner, cache = self._begin(prompt, follow, threads)
        logits = None
        for tokens in zip(*follow, strict=True):
            logits = runner.step(torch.tensor(tokens), cache)
        assert logits is not None
        return packed(logits.float().contiguous().numpy())

    def _begin(self, prompt: list[list[int]], follow: list[list[int]], threads: int) -> tuple[Any, Any]:
        runner = self._runner(threads)
        cache = runner.cache(len(prompt), capacity=len(prompt[0]) + len(follow[0]) + SPARE)
        runner.prefill(torch.tensor(prompt), cache)
        return runner, cache

    def _runner(self, threads: int) -> Any:
        torch.set_num_threads(threads)
        if threads not in self.runners:
            assert self.checkpoint is not None
            if self.kind == "engine":
                from plait.engine import optimize

                self.runners[threads] = optimize(self.checkpoint, threads=threads)
            else:
                self.runners[threads] = ModelRunner(self.checkpoint.model)
        return self.runners[threads]


def versions() -> dict[str, str]:
    """What answers here."""
    return {
        "plait": plait.__version__,
        "torch": importlib.metadata.version("torch"),
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    session = Session()
    serve({name: getattr(session, name) for name in ("load", "decode", "prefill", "logits")} | {"versions": versions})
