"""Visits: what each feed-forward sublayer does in a pass, turn by turn, also where layers share their weights.

Legend: p places of all rows, w width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from plait.inspection.memory.networks import Memories, memories
from plait.model import Transformer, site_names
from plait.model.block import Block
from plait.model.sites import Change
from plait.model.stack import Stack

FIRED = ("ffn.activation", "ffn.routes", "ffn.shared.activation", "ffn.shared_scale")
STREAM = ("after_attention", "after_cross", "ffn_branch")


@dataclass(frozen=True, kw_only=True, eq=False)
class Visit:
    """One layer's turn: ``seen`` are its values by name, ``(p, ...)``."""

    tower: str
    turn: int
    block: Block
    seen: Mapping[str, Tensor]

    @property
    def name(self) -> str:
        """The layer's, by its turn."""
        return f"{self.tower}.layers.{self.turn}"

    def __getitem__(self, own: str) -> Tensor:
        """A value by the layer's own name for it."""
        return self.seen[f"{self.name}.{own}"]

    @property
    def before(self) -> Tensor:
        """The stream that the sublayer's branch is added to, ``(p, w)``."""
        if self.block.parallel != "none":
            return self["output"] - self["ffn_branch"]
        return self["after_attention" if self.block.cross is None else "after_cross"]

    def networks(self) -> Iterator[Memories]:
        """What makes up the sublayer."""
        yield from memories(self.block.ffn, self.seen, f"{self.name}.ffn")

    def at(self, places: Tensor) -> Visit:
        """The same at some places."""
        return replace(self, seen={name: value[places] for name, value in self.seen.items()})


def stacks(model: Transformer) -> dict[str, Stack]:
    """The towers by name."""
    towers = {"encoder": model.encoder, "decoder": model.decoder}
    return {name: stack for name, stack in towers.items() if stack is not None}


def visited(model: Transformer, towers: Collection[str], *, stream: bool = False) -> list[str]:
    """The sites to watch for ``visiting``; with those of the residual stream."""
    wanted = (*FIRED, *(STREAM if stream else ()), "output")
    found: list[str] = []
    for name in site_names(model):
        tower, _, rest = name.partition(".layers.")
        if rest and tower in towers and rest.partition(".")[2] in wanted:
            found.append(name)
    return found


def visiting(model: Transformer, take: Callable[[Visit], object]) -> Change:
    """For ``watching``: hands each turn of a layer to ``take`` as soon as it is over, and changes nothing."""
    towers, turns, held = stacks(model), Counter[str](), dict[str, Tensor]()

    def change(site: str, value: Tensor) -> None:
        tower, _, _, own = site.split(".", 3)
        turn = turns[tower]
        held[f"{tower}.layers.{turn}.{own}"] = value.detach().flatten(0, 1)
        if own == "output":
            take(Visit(tower=tower, turn=turn, block=towers[tower].blocks[turn], seen=dict(held)))
            held.clear()
            turns[tower] += 1

    return change
