"""TREC's six kinds of questions from all-MiniLM-L6-v2: the recipe trec-minilm beside the reference library's own model.

    python benchmarks/trec.py MODEL [--data FOLDER] [--seeds 0,1,2] [--sides plait,reference] [--threads 1] [SETTINGS]

The reference is its ``AutoModelForSequenceClassification`` in a plain loop: its own head over the first token, its own
dropout, torch's AdamW; the same weights to begin with but for the head, the same batches in the same order, learning
rate, schedule, clipping and number of steps. What counts is the accuracy on the recipe's validation file after the last
step: on 500 questions one standard deviation is about 0.8 points. SETTINGS are the recipe's: --run.epochs 2.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from plait.data.batch import Batch
from plait.training.folder import Folder
from plait.training.recipe import read_recipe
from plait.training.resolve import Resolved, decide, resolve
from plait.training.running import Running, ready
from plait.training.schedules import share, steps_of

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / ".reference"))


def ours(run: Resolved) -> float:
    """The accuracy that ``plait train`` ends with."""
    with tempfile.TemporaryDirectory() as folder:
        running: Running = ready(run, Folder(Path(folder) / "run"))
        for _ in running.steps():
            pass
        return running.measure()["accuracy"]


def theirs(run: Resolved, model: str) -> float:
    """The accuracy of the reference's model after a plain loop over the same batches."""
    import transformers  # type: ignore[import-not-found]

    recipe, labels = run.recipe, run.checkpoint.labels
    assert labels is not None and run.valid is not None
    torch.manual_seed(recipe.run.seed)
    peer = transformers.AutoModelForSequenceClassification.from_pretrained(
        model, num_labels=len(labels), hidden_dropout_prob=recipe.run.dropout, dtype=torch.float32
    )
    settings = recipe.optimizer
    plain = [p for p in peer.parameters() if p.ndim < 2]
    groups = [
        {"params": [p for p in peer.parameters() if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=settings.lr, betas=(settings.beta1, settings.beta2), eps=settings.eps, fused=True
    )
    steps = steps_of(recipe, run.train.steps_per_epoch)
    assert steps is not None

    def logits(batch: Batch) -> torch.Tensor:
        seen = torch.ones_like(batch.tokens) if batch.mask is None else (batch.mask != 0).long()
        return peer(input_ids=batch.tokens, attention_mask=seen).logits

    peer.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * share(recipe.schedule, step, steps)
        (batch,) = run.train.step(step)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits(batch), batch.targets).backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), settings.clip)
        optimizer.step()
    peer.eval()
    right = total = 0
    with torch.no_grad():
        for batch in run.valid.evaluation():
            right += int((logits(batch).argmax(-1) == batch.targets).sum())
            total += len(batch.targets)
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder with all-MiniLM-L6-v2")
    parser.add_argument("--data", type=Path, help="the folder with trec/; else PLAIT_DATA's")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--sides", default="plait,reference")
    parser.add_argument("--threads", type=int, default=1)
    options, more = parser.parse_known_args()
    torch.set_num_threads(options.threads)
    given = ["--model.from", options.model, "--evaluate.every", "1000000", "--run.save_every", "1000000", *more]
    recipe = decide(read_recipe(ROOT / "recipes/trec-minilm.toml", given), options.data)
    found: dict[str, list[float]] = {}
    for seed in map(int, options.seeds.split(",")):
        for side in options.sides.split(","):
            run = resolve(replace(recipe, run=replace(recipe.run, seed=seed)))
            begun = time.perf_counter()
            accuracy = ours(run) if side == "plait" else theirs(run, options.model)
            found.setdefault(side, []).append(accuracy)
            print(f"{side:10} seed {seed}  accuracy {accuracy:.3f}  {time.perf_counter() - begun:.0f} s", flush=True)
    for side, accuracies in found.items():
        print(f"{side:10} mean {statistics.mean(accuracies):.4f} of {len(accuracies)}")


if __name__ == "__main__":
    main()
