"""Masked: a small BERT learnt by us and by the reference library's own loop, measured on the same hidden tokens.

    python benchmarks/masked.py [--side plait] [--data FOLDER] [--reference FOLDER] [--section.key value ...]

Both sides begin with the same weights, read the same rows of recipes/wikitext-bert.toml as often, and have its AdamW,
schedule, clipping and dropout. The order of rows and what is hidden in training are each side's own: the reference has
its BertForMaskedLM, and its DataCollatorForLanguageModeling at the recipe's rate. What is hidden of the test text is
ours, once for all, and the same for both.

A model that knows how often tokens occur and nothing else has the loss that is printed first: the cross-entropy of the
hidden tokens under the training text's frequencies, each token counted once more than it occurs; or, where that is
lower, the entropy of the hidden tokens' own frequencies.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import plait
from plait.data.batch import Batch
from plait.data.masked import Masked
from plait.data.samples import Samples
from plait.training.evaluation import evaluate
from plait.training.loop import train
from plait.training.loss import batch_loss
from plait.training.recipe import read_recipe
from plait.training.resolve import Resolved, decide, resolve

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "recipes" / "wikitext-bert.toml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=["plait", "reference"], help="one of them alone")
    parser.add_argument("--data", type=Path, help="instead of the folder that PLAIT_DATA names")
    parser.add_argument("--reference", default=str(ROOT / ".reference"), help="where the reference library is")
    options, settings = parser.parse_known_args()
    recipe = decide(read_recipe(RECIPE, settings), options.data)
    torch.set_num_threads(recipe.run.threads or 1)
    resolved = resolve(recipe)
    hidden = list(_valid(resolved).evaluation())
    least = unigram(resolved, hidden)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        plait.save(resolved.checkpoint, folder, dialect="bert", overwrite=True)
        for side, learn in (("plait", ours), ("reference", theirs)):
            if options.side in (None, side):
                began = time.process_time()
                found[side] = learn(resolved, hidden, Path(folder), options.reference)
                seconds = time.process_time() - began
                print(
                    f"{side}: {found[side]:.4f}, {least - found[side]:.2f} under it; {seconds:.0f} s of processor time"
                )
    if len(found) == 2:
        print(f"ours over the reference's: {found['plait'] / found['reference']:.4f}")


def unigram(resolved: Resolved, hidden: list[Batch]) -> float:
    """The loss of frequencies alone, printed."""
    rows = _masked(resolved.train).rows
    known = Counter(id for row in range(len(rows)) for id in rows[row].tolist())
    asked = Counter(id for batch in hidden for id in batch.targets[batch.real].tolist())
    count, total = asked.total(), known.total() + resolved.architecture.vocab_size
    cross = -sum(n * math.log((known[id] + 1) / total) for id, n in asked.items()) / count
    own = -sum(n * math.log(n / count) for n in asked.values()) / count
    print(f"{known.total():,} tokens to learn from, {resolved.recipe.run.steps:,} steps; {count:,} hidden tokens")
    print(f"frequencies alone: {cross:.4f} nats by those of the training text, {own:.4f} by the hidden tokens' own")
    return min(cross, own)


def ours(resolved: Resolved, hidden: list[Batch], folder: Path, reference: str) -> float:
    """The loss of our loop's model."""
    model, valid = resolved.checkpoint.model, _valid(resolved)

    def measure() -> dict[str, float]:
        return evaluate(model, valid, batch_loss, metrics=["loss"])

    with torch.no_grad():
        nats, count = batch_loss(model.eval(), hidden[0])
    print(f"plait, before the first step, on the first rows: {float(nats) / int(count):.4f}", flush=True)
    loss = math.nan
    for step in train(model, resolved.train, resolved.recipe, measure=measure):
        if step.evaluation:
            loss = step.evaluation["loss"]
            print(f"plait, step {step.index}: {loss:.4f}", flush=True)
    return loss


def theirs(resolved: Resolved, hidden: list[Batch], folder: Path, reference: str) -> float:
    """The loss of the reference's model after a loop of its own parts."""
    sys.path.append(reference)
    os.environ["HF_HUB_OFFLINE"] = "1"  # it asks the hub about any tokenizer
    import transformers  # type: ignore[import-not-found]

    transformers.logging.set_verbosity_error()
    recipe = resolved.recipe
    model = transformers.BertForMaskedLM.from_pretrained(
        folder,
        hidden_dropout_prob=recipe.run.dropout,
        attention_probs_dropout_prob=recipe.run.attention_dropout,
    )
    collator = transformers.DataCollatorForLanguageModeling(
        tokenizer=transformers.AutoTokenizer.from_pretrained(folder), mlm_probability=recipe.objective.mask_rate
    )
    said = recipe.optimizer
    decayed = [p for name, p in model.named_parameters() if not name.endswith("bias") and "LayerNorm" not in name]
    rest = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": said.weight_decay}, {"params": rest, "weight_decay": 0.0}],
        lr=said.lr,
        betas=(said.beta1, said.beta2),
        eps=said.eps,
        fused=True,
    )
    steps = recipe.run.steps or 0
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, recipe.schedule.warmup, steps)
    torch.manual_seed(recipe.run.seed)
    batches = _endless(resolved, collator)
    print(f"reference, before the first step, on the first rows: {_loss(model, hidden[:1]):.4f}", flush=True)
    loss = math.nan
    for index in range(1, steps + 1):
        model(**next(batches)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), said.clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if index % (recipe.evaluate.every or steps) == 0 or index == steps:
            loss = _loss(model, hidden)
            print(f"reference, step {index}: {loss:.4f}", flush=True)
    return loss


def _endless(resolved: Resolved, collator: Any) -> Iterator[Any]:
    """The reference's batches: our rows within [CLS] and [SEP], in its own order, hidden by its collator."""
    masked = _masked(resolved.train)
    rows: Any = [
        {"input_ids": [*masked.before, *masked.rows[n].tolist(), *masked.after]} for n in range(len(masked.rows))
    ]
    size = resolved.recipe.data.batch_rows
    loader = torch.utils.data.DataLoader(rows, batch_size=size, shuffle=True, collate_fn=collator, drop_last=True)
    while True:
        yield from loader


@torch.no_grad()
def _loss(model: Any, hidden: list[Batch]) -> float:
    model.eval()
    total = count = 0.0
    for batch in hidden:
        n = int(batch.real.sum())
        assert batch.mask is not None, "rows are of different lengths"
        said = model(input_ids=batch.tokens, attention_mask=batch.mask.long(), labels=batch.targets)
        total, count = total + float(said.loss) * n, count + n
    model.train()
    return total / count


def _masked(stream: Any) -> Masked:
    assert isinstance(stream, Samples) and isinstance(stream.objective, Masked), "the recipe hides tokens"
    return stream.objective


def _valid(resolved: Resolved) -> Samples:
    assert isinstance(resolved.valid, Samples), "the recipe has a text to be measured on"
    return resolved.valid


if __name__ == "__main__":
    main()
