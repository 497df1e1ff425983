"""Walk: one forward pass told step by step, every step with its formula and the numbers of that very pass.

Legend: n tokens, h heads, q queries, k keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.inspection.trace import Trace, trace
from plait.inspection.walk.embedding import embedding_steps
from plait.inspection.walk.ending import ending_steps
from plait.inspection.walk.joining import Read
from plait.inspection.walk.layer import Surroundings, layer_steps
from plait.inspection.walk.norm import norm_step
from plait.inspection.walk.overview import layers_step
from plait.inspection.walk.place import Kept, Place, named, wide
from plait.inspection.walk.projecting import Turning
from plait.inspection.walk.step import Slot, Step, View
from plait.model.mask import place as placed
from plait.model.mask import visible
from plait.model.position import alibi, alibi_slopes, table_type
from plait.model.stack import Stack


@dataclass(frozen=True, kw_only=True, eq=False)
class Told:
    """One tower: its tokens, and its steps ``before`` the layers, in each of the ``layers``, and ``after`` them.
    ``group``: heads that share keys and values. ``place``: the token that is looked at first."""

    name: str
    tokens: tuple[str, ...]
    n_heads: int
    group: int
    before: tuple[Step, ...]
    layers: tuple[tuple[Step, ...], ...]
    after: tuple[Step, ...]
    place: int

    def steps(self, layer: int) -> tuple[Step, ...]:
        """All of them, by way of one layer."""
        return (*self.before, *self.layers[layer], *self.after)


@dataclass(frozen=True, kw_only=True, eq=False)
class Walk:
    """``arrays`` and ``texts`` are what the steps of the ``towers`` speak of; the last tower has the output."""

    trace: Trace
    towers: tuple[Told, ...]
    arrays: dict[str, Tensor]
    texts: dict[str, list[list[str]]]


@torch.no_grad()
def walk(checkpoint: Checkpoint, text: Any, *, target: Any = None) -> Walk:
    """Read one text, and tell how.

    Args:
        text: text, token ids, or messages; of an encoder-decoder the source.
        target: see ``trace``.
    """
    seen = trace(checkpoint, text, target=target)
    kept, towers, memory = Kept(), list[Told](), None
    for stack in filter(None, (checkpoint.model.encoder, checkpoint.model.decoder)):
        towers.append(_Teller(checkpoint, seen, kept, stack, memory).tell())
        memory = _memory(seen, kept) if checkpoint.model.decoder is not None else None
    return Walk(trace=seen, towers=tuple(towers), arrays=kept.arrays, texts=kept.texts)


def _memory(seen: Trace, kept: Kept) -> Read | None:
    """The encoder's output, which the decoder looks at."""
    if "encoder.output" not in seen:
        return None
    kept.arrays["encoder.output"] = wide(seen["encoder.output"])
    return "encoder.output", kept.arrays["encoder.output"]


class _Teller:
    """The telling of one tower."""

    def __init__(self, checkpoint: Checkpoint, seen: Trace, kept: Kept, stack: Stack, memory: Read | None) -> None:
        self.checkpoint, self.trace, self.stack, self.memory = checkpoint, seen, stack, memory
        self.name = stack.tower.name
        self.place = Place(seen, kept, self.name, self.name)
        model, reading = checkpoint.model, seen.reading
        of_source = self.name == "encoder" and model.decoder is not None
        self.site = "source_embedding.output" if of_source else "embedding.output"
        self.embedding = (model.source_embedding if of_source else None) or model.embedding
        ids = reading.source if of_source else reading.tokens
        assert ids is not None
        self.last = self.name == seen.tower
        tokenizer = checkpoint.tokenizer
        self.writer = tokenizer if tokenizer is None or tokenizer.target is None else tokenizer.target
        self.ids = ids[0]
        self.tokens = tuple(named(self.ids.tolist(), self.writer if self.name == "decoder" else tokenizer))

    def tell(self) -> Told:
        """Everything."""
        tower, a = self.stack.tower, self.checkpoint.architecture
        table = self.embedding.tokens or self.checkpoint.model.embedding.tokens
        assert table is not None
        embedded = wide(self.trace[self.site])
        self.place.keep("embedded", embedded)
        written = self.memory is not None
        before = embedding_steps(self.place, self.embedding, table, self.ids, embedded, a, written=written)
        return Told(
            name=self.name,
            tokens=self.tokens,
            n_heads=tower.n_heads,
            group=tower.group,
            before=tuple(before),
            layers=tuple(self._layers(embedded)),
            after=tuple(self._after(embedded)),
            place=self._first(),
        )

    def _layers(self, embedded: Tensor) -> Iterator[tuple[Step, ...]]:
        stream: Read = (f"{self.name}.embedded", embedded)
        bias = self._penalties(embedded)
        for turn, (block, kind) in enumerate(zip(self.stack.blocks, self.stack.tower.layers, strict=True)):
            table = block.attention.relative_bias
            if table is not None:
                place = torch.arange(len(embedded), device=embedded.device)
                relative = wide(table((place - place[:, None])[None])[0])
                penalties = self._penalties(embedded)
                bias = relative if penalties is None else relative + penalties
            place = Place(self.trace, self.place.kept, f"{self.name}.layers.{turn}", f"{self.name}.layers.@")
            around = Surroundings(
                tower=self.name,
                allowed=self._allowed(kind.window),
                rule=_rule(self.stack.tower.causal, kind.window),
                turning=None if kind.rope is None else Turning(self.stack.rotations[kind.rope], len(embedded)),
                bias=bias,
                memory=self.memory,
            )
            yield tuple(layer_steps(place, block, self._between(turn, stream), around))

    def _between(self, turn: int, embedded: Read) -> Read:
        """The stream that a layer reads, under one name for all layers."""
        value = embedded[1] if turn == 0 else wide(self.trace[f"{self.name}.layers.{turn - 1}.output"])
        self.place.kept.arrays[f"{self.name}.layers.{turn}.stream"] = value
        return f"{self.name}.layers.@.stream", value

    def _allowed(self, window: int | None) -> Tensor:
        places = placed(None, None, len(self.ids), self.ids.device)
        seen = visible(places, places, causal=self.stack.tower.causal, window=window)
        n = len(self.ids)
        return torch.ones(n, n, dtype=torch.bool, device=self.ids.device) if seen is None else seen[0, 0]

    def _penalties(self, like: Tensor) -> Tensor | None:
        """ALiBi's, ``(h, q, k)``."""
        if self.stack.alibi is None:
            return None
        tower, place = self.stack.tower, torch.arange(len(like), device=like.device)
        slopes = torch.tensor(alibi_slopes(tower.n_heads), dtype=table_type(like.dtype), device=like.device)
        return wide(alibi(self.stack.alibi, place[None], place[None], slopes, tower.attention_scale)[0])

    def _after(self, embedded: Tensor) -> Iterator[Step]:
        n_layers = self.stack.tower.n_layers
        yield layers_step(self.place, embedded, n_layers, self.writer)
        left = wide(self.trace[f"{self.name}.layers.{n_layers - 1}.output"])
        states: Read = (self.place.keep("left", left), left)
        if self.stack.norm is not None:
            output = self.place.seen("output")
            step, states = norm_step(
                self.place, self.stack.norm, "norm", states, title="final_norm_title", left=output, lane="stream"
            )
            yield replace(step, says=(*step.says, "final_norm_says"))
        if self.last:
            yield from ending_steps(self.place, self.checkpoint, states, self.writer)
        else:
            yield _handed_on(states)

    def _first(self) -> int:
        """A mask that waits to be filled, or the last token."""
        tokenizer = self.checkpoint.tokenizer
        mask = None if tokenizer is None else tokenizer.named.get("mask")
        ids = self.ids.tolist()
        return ids.index(mask) if mask in ids else len(ids) - 1


def _rule(causal: bool, window: int | None) -> str:
    """Which tokens k are hidden from a token p, in symbols."""
    if window is None:
        return "k > p" if causal else ""
    return f"k > p ∨ k ≤ p − {window}" if causal else f"|k − p| > {window}"


def _handed_on(states: Read) -> Step:
    return Step(
        name="memory",
        title="memory_title",
        says=("memory_says",),
        views=(View(kind="rows", label="states", at=f"{states[0]}[* *]", sets="p d"),),
        slots={"n": len(states[1]), "token": Slot("token", "p")},
        lane="stream",
    )
