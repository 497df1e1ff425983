"""Trace: one forward pass of one row, with its inner values by name and its tokens as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.inspection.reading import Reading, read
from plait.model import Transformer, watching
from plait.model.sites import Change


class Trace(Mapping[str, Tensor]):
    """Values by the names of their sites, without the batch's axis; ``output`` is what the model gave: logits, or
    hidden states where it has no head."""

    def __init__(self, model: Transformer, reading: Reading, values: Mapping[str, Tensor], output: Tensor) -> None:
        self.model, self.reading, self.output = model, reading, output
        self._values = values

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            kept = ", ".join(list(self._values)[:3]) or "nothing"
            raise KeyError(f"{name}: this trace has not kept it; it has {kept} and {len(self._values)} values in all.")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def tower(self) -> str:
        """The tower that the output is read from."""
        return "encoder" if self.model.decoder is None else "decoder"


@torch.no_grad()
def trace(checkpoint: Checkpoint, text: Any, *patterns: str, target: Any = None, change: Change | None = None) -> Trace:
    """Read one text and keep the values of the sites that ``patterns`` name, of all where none is named.

    Args:
        text: text, token ids, or messages; of an encoder-decoder the source.
        target: of an encoder-decoder what its decoder reads behind the start token; ``None``: what it would write.
        change: see ``watching``.

    Raises ``ValueError`` where a pattern names no site, and for what cannot be read.
    """
    reading = text if isinstance(text, Reading) else read(checkpoint, text, target=target)
    model, kept = checkpoint.model.eval(), dict[str, Tensor]()
    turn = _turns(model)

    def keep(name: str, value: Tensor) -> Tensor | None:
        changed = None if change is None else change(name, value)
        kept[turn(name)] = (value if changed is None else changed)[0].detach().clone()
        return changed

    with watching(model, *(patterns or ("*",)), change=keep):
        output = model(reading.tokens, **reading.inputs)
        return Trace(model, reading, kept, output[0])
    raise AssertionError("nothing ends the pass early")


def _turns(model: Transformer) -> Callable[[str], str]:
    """From a site's name to that of its turn, each time it is called: where layers share weights (ALBERT's) and run
    several times, ``encoder.layers.7.output`` of a trace is what the eighth layer gave, whoever's weights it has."""
    turns: dict[str, list[int]] = {}
    for stack in filter(None, (model.encoder, model.decoder)):
        for turn, layer in enumerate(stack.tower.schedule):
            turns.setdefault(f"{stack.tower.name}.layers.{layer}", []).append(turn)
    visits: Counter[str] = Counter()

    def named(site: str) -> str:
        path = ".".join(site.split(".")[:3])
        if path not in turns:
            return site
        tower, _, _ = path.partition(".")
        turn = turns[path][visits[site] % len(turns[path])]
        visits[site] += 1
        return f"{tower}.layers.{turn}{site.removeprefix(path)}"

    return named
