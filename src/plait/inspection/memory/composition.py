"""Composition: how a layer's memories, its feed-forward network and the stream agree on what is said (Geva et al. 2021,
section 5), over a sample of a corpus' places.

Legend: p places, m neurons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.inspection.memory.agreement import Neurons, never_negative
from plait.inspection.memory.corpus import Batch, Corpus
from plait.inspection.memory.reading import Reader
from plait.inspection.memory.survey import batch_tokens, read
from plait.inspection.memory.visits import Visit

ROWS, EACH = 32, 16  # of the corpus, and places of each
ACTIVE = 0.1  # of the largest coefficient of a place


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Of one layer, over ``n`` places.

    Args:
        active: the share of neurons that count: not 0 under ReLU, else a tenth of the largest there, or more.
        zero: how often the network says a token that none of its active memories says ("zero agreement").
        composed: how often the stream behind the layer says neither what it said before nor what the network says.
        settled: how often it says what the model says in the end.
        off: how far the memories' sum is from what the network gave: max |sum - given| / max(1, max |given|).
    """

    n: int
    active: float
    zero: float
    composed: float
    settled: float
    off: float

    @classmethod
    def over(cls, parts: Sequence[Composition]) -> Composition:
        """Parts of a sample together."""
        n = sum(part.n for part in parts)
        shares = {
            field.name: sum(part.n * getattr(part, field.name) for part in parts) / n for field in fields(cls)[1:-1]
        }
        return cls(n=n, off=max(part.off for part in parts), **shares)


Found = dict[str, Composition]  # by the names of layers


@torch.no_grad()
def composition(
    checkpoint: Checkpoint,
    corpus: Corpus,
    readers: Mapping[str, Reader],
    layers: Mapping[str, Sequence[Neurons]],
    *,
    rows: int = ROWS,
    each: int = EACH,
) -> Iterator[tuple[int, Found]]:
    """Read a sample of the corpus, and yield after each batch how many rows it had, and what was found so far.

    Args:
        readers: by tower.
        layers: those that are asked for, by name, and what is known of their networks.
        rows, each: how many rows, evenly over the corpus, and how many places of each.
    """
    model, found = checkpoint.model.eval(), dict[str, list[Composition]]()
    last = {tower: f"{tower}.layers.{len(reader.stack.blocks) - 1}" for tower, reader in readers.items()}
    needed = {*layers, *last.values()}
    for batch in corpus.batches(batch_tokens(model, corpus), sampled(corpus, rows)):
        places = {tower: _picked(batch, tower, each) for tower in batch.places}
        says, counted = dict[str, Tensor](), dict[str, Composition]()

        def take(
            visit: Visit,
            places: dict[str, Tensor] = places,
            says: dict[str, Tensor] = says,
            counted: Found = counted,
        ) -> None:
            visit, reader = visit.at(places[visit.tower]), readers[visit.tower]
            if visit.name in needed:
                says[visit.name] = reader.answers(visit.turn, visit["output"])
            if visit.name in layers:
                counted[visit.name] = _counted(visit, reader, layers[visit.name], says[visit.name])

        read(model, batch, take, layers=needed, stream=True)
        for name, one in counted.items():
            final = says[last[name.partition(".")[0]]]
            one = replace(one, settled=float((says[name] == final).double().mean()))
            found.setdefault(name, []).append(one)
        yield len(next(iter(batch.ids.values()))), {name: Composition.over(parts) for name, parts in found.items()}


def sampled(corpus: Corpus, rows: int = ROWS) -> list[int]:
    """So many rows, evenly over those of a corpus in which places count."""
    counting = np.flatnonzero(np.min([lane.counted for lane in corpus.lanes.values()], axis=0) > 0)
    return counting[_evenly(len(counting), rows)].tolist()


def _evenly(n: int, k: int) -> NDArray[np.int64]:
    """At most ``k`` of the numbers below ``n``."""
    return np.unique(np.linspace(0, n - 1, min(k, n)).astype(np.int64))


def _picked(batch: Batch, tower: str, each: int) -> Tensor:
    """Some places that count, evenly over the rows: ``(p,)``."""
    places = batch.places[tower]
    counted = (places.flatten() >= 0).nonzero()[:, 0]
    return counted[torch.from_numpy(_evenly(len(counted), each * len(places)))]


def _counted(visit: Visit, reader: Reader, networks: Sequence[Neurons], after: Tensor) -> Composition:
    branch, by_name = visit["ffn_branch"], {one.name: one for one in networks}
    says = torch.cat([scores.argmax(-1) for scores in reader.scores(visit.turn, branch, branch=True)])  # p
    seen = list(visit.networks())
    coefficients = torch.cat([network.coefficients for network in seen], -1)  # p m
    sizes, relu = coefficients.abs(), never_negative(reader.model.architecture)
    fires = sizes > (0 if relu else ACTIVE * sizes.amax(-1, keepdim=True))
    first = torch.cat([by_name[network.name].raised[:, 0] for network in seen]).to(says.device)  # m
    agrees = fires & (coefficients > 0) & (first == says[:, None])
    if not relu:
        first = torch.cat([by_name[network.name].lowered[:, 0] for network in seen]).to(says.device)
        agrees |= fires & (coefficients < 0) & (first == says[:, None])
    made = visit.block.ffn_norms.branch(torch.stack([network.output() for network in seen]).sum(0)).float()
    before = reader.answers(visit.turn, visit.before, before=True)
    return Composition(
        n=len(says),
        active=int(fires.sum()) / (len(says) * sum(map(len, networks))),
        zero=float((~agrees.any(-1)).double().mean()),
        composed=float(((after != before) & (after != says)).double().mean()),
        settled=0.0,  # known when the pass is over
        off=float((made - branch).abs().max() / branch.float().abs().max().clamp(min=1)),
    )
