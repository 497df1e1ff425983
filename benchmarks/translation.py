"""Beam search over many sentences: the engine against the reference library's generate, in the same batches.

    python benchmarks/translation.py [--shape tiny] [--sentences 1000] [--rows 64] [--beams 5] [--new 15] [--threads 2]

A random Marian, sources of 4 to 30 tokens sorted by length, every translation ``--new`` tokens long. ``tiny`` is 4 + 4
layers of 128 with 10,000 ids, ``base`` 6 + 6 of 512 with 32,000. Batches in turn, each by both; what they write is
compared. Sentences a second, of wall and of processor time: on a machine with others at work the second is the one to
read. The reference library is looked for in ``.reference``.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import plait
from plait.generation import Request, Search
from plait.generation.beam import beam_search
from plait.generation.settings import settle

sys.path.append(str(Path(__file__).parent.parent / ".reference"))

SHAPES = {
    "tiny": {"vocab_size": 10_000, "d_model": 128, "layers": 4, "heads": 4, "ffn": 256},
    "base": {"vocab_size": 32_000, "d_model": 512, "layers": 6, "heads": 8, "ffn": 2048},
}


def reference(shape: dict[str, int]) -> Any:
    """A random Marian of the reference library's, whose pad token begins and is banned."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    pad = shape["vocab_size"] - 1
    towers = {
        f"{tower}_{name}": shape[key]
        for tower in ("encoder", "decoder")
        for name, key in (("layers", "layers"), ("attention_heads", "heads"), ("ffn_dim", "ffn"))
    }
    config = MarianConfig(
        vocab_size=shape["vocab_size"],
        d_model=shape["d_model"],
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
        scale_embedding=True,
        init_std=0.05,
        **towers,
    )
    return MarianMTModel(config).eval()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    for name, value in (("sentences", 1000), ("rows", 64), ("beams", 5), ("new", 15), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shape = SHAPES[options.shape]
    theirs, pad, drawn = reference(shape), shape["vocab_size"] - 1, random.Random(1)
    lengths = [min(30, max(4, int(drawn.gauss(14, 4)))) for _ in range(options.sentences)]
    sources = sorted(([drawn.randrange(1, pad) for _ in range(n)] + [0] for n in lengths), key=len, reverse=True)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        checkpoint = plait.load(folder)
        engine = plait.optimize(checkpoint, threads=options.threads)
    settings = settle(checkpoint.rules, None, shape["vocab_size"], min_new_tokens=options.new)
    search = Search(beams=options.beams)

    def ours_of(batch: list[list[int]]) -> list[list[int]]:
        asked = [Request(tokens=[pad], source=row, limit=options.new, settings=settings) for row in batch]
        found = dict(beam_search(engine, asked, search, preallocate=False))
        return [[piece.token for piece in found[i][0].pieces] for i in range(len(batch))]

    @torch.inference_mode()
    def theirs_of(batch: list[list[int]]) -> list[list[int]]:
        width = max(map(len, batch))
        rows = torch.tensor([row + [pad] * (width - len(row)) for row in batch])
        how = {"num_beams": options.beams, "min_new_tokens": options.new, "max_new_tokens": options.new}
        return theirs.generate(rows, attention_mask=(rows != pad).long(), **how)[:, 1:].tolist()

    sides: dict[str, Callable[[list[list[int]]], list[list[int]]]] = {"plait": ours_of, "reference": theirs_of}
    wall, processor, said = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0.0), dict.fromkeys(sides, [])
    for at in range(0, len(sources), options.rows):
        batch = sources[at : at + options.rows]
        for name, work in sides.items():
            start, used = time.perf_counter(), time.process_time()
            said[name] = said[name] + work(batch)
            wall[name] += time.perf_counter() - start
            processor[name] += time.process_time() - used
    for name in sides:
        n = len(sources)
        print(f"{name:12}{n / wall[name]:8.1f} sentences/s{n / processor[name]:8.1f} a processor second")
    same = sum(a == b for a, b in zip(said["plait"], said["reference"], strict=True))
    print(
        f"ratio {wall['reference'] / wall['plait']:.2f}, of processor time "
        f"{processor['reference'] / processor['plait']:.2f}; {same} of {len(sources)} translations are the same"
    )


if __name__ == "__main__":
    main()
