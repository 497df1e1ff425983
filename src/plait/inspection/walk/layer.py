"""The steps of one layer: attention, attention to the source, and the feed-forward network, around the stream.

Legend: n tokens, m tokens of the source, w width, h heads, q queries, k keys.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from plait.inspection.walk.attending import attending_steps
from plait.inspection.walk.feeding import ffn_steps
from plait.inspection.walk.joining import Read, branch_steps, join_steps
from plait.inspection.walk.norm import norm_step
from plait.inspection.walk.place import Place
from plait.inspection.walk.projecting import Sides, Turning, projecting_steps
from plait.inspection.walk.routing import experts_steps
from plait.inspection.walk.step import Filling, Formula, Slot, Step, View
from plait.model.attention import Attention
from plait.model.block import Block
from plait.model.experts import Experts
from plait.model.norm import Slots


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What a layer is given besides the stream: who sees whom ``(q, k)``, and in symbols who does not; RoPE; what is
    added to scores ``(h, q, k)``; and the encoder's output, if there is one."""

    tower: str
    allowed: Tensor
    rule: str
    turning: Turning | None
    bias: Tensor | None
    memory: Read | None = None


def layer_steps(place: Place, block: Block, stream: Read, around: Surroundings) -> Iterator[Step]:
    """All of them, in their order."""
    read = yield from _entered(place, block.attention_norms, "attention", stream)
    sides = Sides(own=read, other=read, seen=around.tower)
    yield from _attention(place, "attention", block.attention, block.attention_norms, sides, around)
    if block.parallel != "none":
        if block.parallel == "separate":
            read = yield from _entered(place, block.ffn_norms, "ffn", stream)
        yield from _named(_feed(place, block, read), "ffn")
        branches = ("attention_branch", "ffn_branch")
        yield from _named(join_steps(place, block.attention_norms, "ffn", stream, branches, "output", "ffn"), "ffn")
        return
    yield from _joined(place, block.attention_norms, "attention", stream, "after_attention")
    stream = place.show("after_attention")
    if block.cross is not None and block.cross_norms is not None and around.memory is not None:
        read = yield from _entered(place, block.cross_norms, "cross", stream)
        sides = Sides(own=read, other=around.memory, seen="encoder")
        everything = around.allowed.new_ones(len(stream[1]), len(around.memory[1]))
        across = Surroundings(tower=around.tower, allowed=everything, rule="", turning=None, bias=None)
        yield from _attention(place, "cross", block.cross, block.cross_norms, sides, across)
        yield from _joined(place, block.cross_norms, "cross", stream, "after_cross")
        stream = place.show("after_cross")
    read = yield from _entered(place, block.ffn_norms, "ffn", stream)
    yield from _named(_feed(place, block, read), "ffn")
    yield from _joined(place, block.ffn_norms, "ffn", stream, "output")


def _feed(place: Place, block: Block, read: Read) -> Iterator[Step]:
    if isinstance(block.ffn, Experts):
        return experts_steps(place, block.ffn, block.ffn_norms, read)
    return ffn_steps(place, block.ffn, block.ffn_norms, read)


def _named(steps: Iterator[Step], group: str) -> Iterator[Step]:
    """Steps whose names say which sublayer they are of."""
    for step in steps:
        yield replace(step, name=f"{group}.{step.name}")


def _entered(place: Place, slots: Slots, group: str, stream: Read) -> Generator[Step, None, Read]:
    """What a sublayer reads: the stream, normed where it has a norm before it."""
    if slots.before is None:
        return stream
    step, read = norm_step(place, slots.before, f"{group}_norms.before", stream, title="before_title", group=group)
    yield replace(step, name=f"{group}.norm")
    return read


def _joined(place: Place, slots: Slots, group: str, stream: Read, left: str) -> Iterator[Step]:
    yield from _named(join_steps(place, slots, group, stream, (f"{group}_branch",), left, group), group)


def _attention(
    place: Place, group: str, attention: Attention, slots: Slots, sides: Sides, around: Surroundings
) -> Iterator[Step]:
    inner = place.within(group)
    if around.bias is not None:
        inner.keep("bias", around.bias)
    yield from _named(projecting_steps(inner, attention, sides, around.turning, group), group)
    sight = (around.allowed, around.rule, around.bias)
    yield from _named(attending_steps(inner, attention, *sight, group=group, seen=sides.seen), group)
    mix = inner.seen("mix")
    joined = f"{inner.spec}.mix[* p *]"  # heads side by side
    slot: dict[str, Filling] = {"sum": inner.products("output.weight", attention.output.weight, joined, "[d {}]")}
    symbols, filled = "y = Wₒ · m", "{sum}"
    if attention.output.bias is not None:
        slot["b"] = Slot("number", inner.keep("output.bias", attention.output.bias) + "[d]")
        symbols, filled = f"{symbols} + b", f"{filled} + {{b}}"
    step = Step(
        name="output",
        title="output_title",
        says=("output_says",),
        formulas=(Formula(symbols=symbols, filled="", slots=slot),),
        views=(View(kind="vector", label="heads_joined", at=joined),),
        slots={"heads": len(mix), "d_head": attention.d_head, "d_model": attention.output.weight.shape[0]},
        seen=sides.seen,
    )
    made = place.ask(attention.output, mix.transpose(0, 1).flatten(1))
    yield from _named(branch_steps(place, slots, group, made, step, filled, group), group)
