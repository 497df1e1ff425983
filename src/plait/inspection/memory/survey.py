"""Survey: what fires each neuron of a model over a corpus: streamed, in memory that the corpus' length does not change.

Legend: n places of a batch, m neurons of a network, t triggers kept.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.data.tokens import Tokens
from plait.inspection.memory.networks import memories
from plait.model import Transformer, site_names, watching
from plait.model.stack import Stack

ROWS, LENGTH = 8, 256  # of a batch


@dataclass(kw_only=True, eq=False)
class Triggers:
    """Of one network: the largest coefficients of each neuron, ``strengths`` ``(m, t)`` with their sign, the largest
    size first, and ``places`` ``(m, t)`` where they were, tokens of the corpus counted from 0, -1 where none was."""

    name: str
    strengths: Tensor
    places: Tensor

    @classmethod
    def empty(cls, name: str, m: int, t: int) -> Triggers:
        """Of a network that nothing has fired."""
        return cls(name=name, strengths=torch.zeros(m, t), places=torch.full((m, t), -1))

    def add(self, coefficients: Tensor, places: Tensor) -> None:
        """Take ``(n, m)`` at ``places`` ``(n,)`` into account."""
        sizes = coefficients.abs()
        better = (sizes.amax(0) > self.strengths[:, -1].abs()).nonzero()[:, 0]  # neurons with something new
        if not len(better):
            return
        t = self.strengths.shape[1]
        new = sizes[:, better].t().topk(min(t, len(sizes)))
        values = torch.cat((self.strengths[better], coefficients.t()[better].gather(1, new.indices)), 1)
        where = torch.cat((self.places[better], places[new.indices]), 1)
        best = values.abs().topk(t).indices
        self.strengths[better] = values.gather(1, best)
        self.places[better] = where.gather(1, best)


def stacks(model: Transformer) -> Iterator[tuple[str, Stack]]:
    """The towers by name."""
    for name in ("encoder", "decoder"):
        stack = getattr(model, name)
        if stack is not None:
            yield name, stack


@torch.no_grad()
def survey(
    checkpoint: Checkpoint, corpus: Tokens, *, tower: str = "decoder", keep: int = 10, length: int = LENGTH
) -> Iterator[tuple[int, dict[str, Triggers]]]:
    """Read a corpus in rows, and yield after each batch how many tokens were read, and the triggers so far, by network.

    Of an encoder-decoder the tower is its encoder, which reads alone.
    """
    model = checkpoint.model.eval()
    stack = dict(stacks(model))[tower]
    device = next(model.parameters()).device
    length = min(length, checkpoint.architecture.max_length or length)
    found: dict[str, Triggers] = {}
    sites = [f"{tower}.layers.*.ffn.{name}" for name in ("activation", "routes", "shared.activation", "shared_scale")]
    names = [name for pattern in sites for name in matching(model, pattern)]
    last = f"{tower}.layers.{len(stack.blocks) - 1}.ffn_branch"
    for start in range(0, len(corpus), ROWS * length):
        ids = torch.from_numpy(corpus.read(start, min(start + ROWS * length, len(corpus))))
        whole = max(1, len(ids) // length)
        ids = ids[: whole * length] if len(ids) >= length else ids
        with watching(model, *names, stop_after=last) as seen:
            (model.encode if model.decoder is not None and tower == "encoder" else model)(
                ids.view(whole, -1).to(device)
            )
        values = {name: value.flatten(0, 1) for name, value in seen.items()}
        places = torch.arange(start, start + len(ids))
        for turn, block in enumerate(stack.blocks):
            for network in memories(block.ffn, values, f"{tower}.layers.{turn}.ffn"):
                kept = found.get(network.name) or Triggers.empty(network.name, len(network.values), keep)
                kept.add(network.coefficients.float().cpu(), places)
                found[network.name] = kept
        yield start + len(ids), found


def matching(model: Transformer, pattern: str) -> list[str]:
    """Sites of a name, perhaps none."""
    return fnmatch.filter(site_names(model), pattern)
