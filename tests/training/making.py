"""A small model, samples of unequal length in shuffled order, and a plain loss, for tests of what goes around them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plait.architecture import Architecture
from plait.data.batch import UNCOUNTED, Batch
from plait.data.order import shuffled
from plait.model import Transformer
from plait.training.settings import Recipe

SHAPE = Architecture(vocab_size=11, d_model=12, n_decoder_layers=2, n_heads=3, d_ff=16, max_length=16, tied=True)


def model(dtype: torch.dtype = torch.float32, **knobs: Any) -> Transformer:
    """Two layers, tied."""
    return Transformer(SHAPE.replace(**knobs)).to(dtype)


def recipe(**sections: dict[str, Any]) -> Recipe:
    """Ten steps without warm-up and without dropout, and what ``sections`` say: ``run={"steps": 5}``."""
    said = {"run": {"steps": 10}, "schedule": {"warmup": 0, "kind": "constant"}, "optimizer": {"lr": 0.01}}
    whole = Recipe()
    for name in (said | sections).keys():
        values = {**said.get(name, {}), **sections.get(name, {})}
        whole = dataclasses.replace(whole, **{name: dataclasses.replace(getattr(whole, name), **values)})
    return whole


class Samples:
    """Rows of 2 to 7 tokens, padded: ``step`` deals them in an order that is another in each epoch."""

    def __init__(self, n: int = 20, rows: int = 4, micro: int = 1, seed: int = 3) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.samples = [
            torch.randint(1, 11, (int(length),), generator=generator)
            for length in torch.randint(3, 9, (n,), generator=generator)
        ]
        self.rows, self.micro, self.seed = rows, micro, seed

    @property
    def steps_per_epoch(self) -> int:
        return len(self.samples) // self.rows

    def ids(self, index: int) -> list[int]:
        epoch, place = divmod(index, self.steps_per_epoch)
        places = range(place * self.rows, (place + 1) * self.rows)
        return [shuffled(position, len(self.samples), seed=self.seed, epoch=epoch) for position in places]

    def step(self, index: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        mine = self.ids(index)[rank::world]
        size = -(-len(mine) // self.micro)
        parts = [mine[start : start + size] for start in range(0, len(mine), size)]
        return [batch_of([self.samples[i] for i in part]) for part in parts]

    def evaluation(self, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        mine = self.samples[rank::world]
        for start in range(0, len(mine), 3):
            yield batch_of(mine[start : start + 3])

    def facts(self) -> dict[str, int | float]:
        targets = sum(len(sample) - 1 for sample in self.samples)
        return {"targets": targets, "bytes": 3 * targets}


def batch_of(samples: list[Tensor]) -> Batch:
    """Next-token targets; padding on the right is not counted."""
    longest = max(map(len, samples)) - 1
    tokens = torch.zeros(len(samples), longest, dtype=torch.int64)
    targets = torch.full((len(samples), longest), UNCOUNTED)
    for row, sample in enumerate(samples):
        tokens[row, : len(sample) - 1] = sample[:-1]
        targets[row, : len(sample) - 1] = sample[1:]
    return Batch(tokens=tokens, targets=targets, mask=targets != UNCOUNTED)


def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """The sum of cross-entropies over real targets, and how many there are."""
    logits = model(batch.tokens, **batch.inputs)
    total = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="sum", ignore_index=UNCOUNTED)
    return total, batch.real.sum()


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def furthest(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference."""
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def twin(model: nn.Module) -> nn.Module:
    """Another with the same weights."""
    return copy.deepcopy(model)
