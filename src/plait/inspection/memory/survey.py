"""Survey: what fires each neuron of a model over a corpus: streamed, in memory that the corpus' length does not change.

Legend: p places of a batch, m neurons of a network, t triggers kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.inspection.memory.corpus import Batch, Corpus
from plait.inspection.memory.visits import Visit, stacks, visited, visiting
from plait.model import Transformer, watching

HELD = 1 << 28  # bytes of inner values in memory at once, about
LEAST, MOST = 256, 2048  # tokens of a batch


class Room:
    """Memory that is used again and again: new memory would cost as much as what is done in it."""

    def __init__(self) -> None:
        self.held = torch.empty(0)

    def like(self, x: Tensor) -> Tensor:
        """A tensor like this one; what was given before is overwritten."""
        if (self.held.shape, self.held.dtype, self.held.device) != (x.shape, x.dtype, x.device):
            self.held = torch.empty_like(x, memory_format=torch.contiguous_format)
        return self.held


@dataclass(kw_only=True, eq=False)
class Triggers:
    """Of one network: the largest coefficients of each neuron, ``strengths`` ``(m, t)`` with their sign, the largest
    size first, and the ``places`` ``(m, t)`` where they were; 0 and -1 where there was none."""

    strengths: Tensor
    places: Tensor

    @classmethod
    def none(cls, m: int, t: int) -> Triggers:
        """Of neurons that nothing has fired."""
        return cls(strengths=torch.zeros(m, t), places=torch.full((m, t), -1))

    def add(self, coefficients: Tensor, places: Tensor, room: Room | None = None) -> None:
        """Take ``(p, m)`` at ``places`` ``(p,)`` into account, but for those at -1; ``room`` is for working in."""
        t = self.strengths.shape[1]
        sizes = torch.abs(coefficients, out=(room or Room()).like(coefficients))
        sizes.index_fill_(0, (places < 0).nonzero()[:, 0].to(sizes.device), 0)
        least = self.strengths[:, -1].abs().to(sizes)
        better = (sizes.amax(0) > least).nonzero()[:, 0]  # few, once much has been read
        if not len(better):
            return
        top, rows = sizes.index_select(1, better).t().topk(min(t, len(sizes)))  # of the better ones, t each
        fired = top > 0
        strengths = torch.where(fired, coefficients[rows, better[:, None]], 0).float().cpu()
        better, rows, fired = better.cpu(), rows.cpu(), fired.cpu()
        strengths = torch.cat((self.strengths[better], strengths), 1)
        where = torch.cat((self.places[better], torch.where(fired, places[rows], -1)), 1)
        best = strengths.abs().topk(t).indices
        self.strengths[better] = strengths.gather(1, best)
        self.places[better] = where.gather(1, best)


Found = dict[str, Triggers]  # by the names of networks


def survey(
    checkpoint: Checkpoint, corpus: Corpus, *, keep: int = 10, layers: Collection[str] | None = None
) -> Iterator[tuple[int, Found]]:
    """Read a corpus, and yield after each batch how many tokens it had, and the triggers so far by network.

    Args:
        keep: triggers of each neuron.
        layers: by name, ``decoder.layers.3``, by their turns; none: all.
    """
    model, found, room = checkpoint.model.eval(), Found(), Room()
    for batch in corpus.batches(batch_tokens(model, corpus)):
        places = {tower: value.flatten() for tower, value in batch.places.items()}

        def take(visit: Visit, places: dict[str, Tensor] = places) -> None:
            if layers is None or visit.name in layers:
                for network in visit.networks():
                    if network.name not in found:
                        found[network.name] = Triggers.none(len(network.values), keep)
                    found[network.name].add(network.coefficients, places[visit.tower], room)

        read(model, batch, take, layers=layers)
        yield batch.n_tokens, found


@torch.no_grad()
def read(
    model: Transformer,
    batch: Batch,
    take: Callable[[Visit], object],
    *,
    layers: Collection[str] | None = None,
    stream: bool = False,
) -> None:
    """Let the layers read a batch, as far as those that are asked for, and hand each turn to ``take``.

    ``stream``: with the values of the residual stream.
    """
    named = batch.ids if layers is None else {name.partition(".")[0] for name in layers}
    towers = [tower for tower in batch.ids if tower in named]  # in the order in which they run
    names = visited(model, towers, stream=stream)
    with watching(model, *names, change=visiting(model, take), stop_after=_end(model, towers[-1], layers)):
        batch.run(model)


def _end(model: Transformer, tower: str, layers: Collection[str] | None) -> str:
    """The last site that is needed."""
    schedule = stacks(model)[tower].tower.schedule
    if layers is not None and len(set(schedule)) == len(schedule):
        return (
            f"{tower}.layers.{max(turn for turn in range(len(schedule)) if f'{tower}.layers.{turn}' in layers)}.output"
        )
    return f"{tower}.output"


def batch_tokens(model: Transformer, corpus: Corpus) -> int:
    """How many tokens are read at once: as many as a bounded memory holds the inner values of."""
    a, numbers = model.architecture, 0
    for tower in (a.tower("encoder" if name == "encoder" else "decoder") for name in corpus.lanes):
        for layer in tower.layers:
            wide = tower.d_ff
            if layer.sparse and a.experts is not None:
                wide = a.experts.per_token * a.experts.d_expert + (a.experts.d_shared or 0)
            numbers += wide + a.d_model
    return max(LEAST, min(MOST, HELD // (4 * numbers)))
