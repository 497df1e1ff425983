"""Plan: whether training fits on some devices, and in which way: spread over them how, in how many micro-batches, with
layers computed once or twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from plait.account import flops, wire
from plait.account.activations import kept, largest_layer
from plait.account.memory import Kind, Memory, Parameter, Spread, held
from plait.account.output import loss_peak
from plait.account.passes import Pass, length_of
from plait.architecture import Architecture

RESERVE = 0.05  # share of a device that its driver, its libraries' workspaces and gaps between tensors take


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a run, as far as memory goes.

    Args:
        architecture: with as many tokens as there will be.
        parameters: all of them by name, adapters too.
        rows: of a step, all devices and micro-batches together.
        micro_batches, twice: as the recipe says; ``twice`` is activation checkpointing.
        one: a micro-batch, of any number of rows.
        whole: rows stay together: a micro-batch is never dealt to several devices, and their number is no free choice.
        averages: copies of the weights that are kept for an average.
        swapped: copies that are made while the average is evaluated.
    """

    architecture: Architecture
    parameters: Mapping[str, Parameter]
    rows: int
    micro_batches: int
    one: Pass
    twice: bool = False
    whole: bool = False
    averages: int = 0
    swapped: int = 0

    def rows_of(self, spread: Spread, micro_batches: int) -> int:
        """Rows of the largest micro-batch of a device."""
        mine = self.rows if self.whole else ceil(self.rows / spread.readers)
        return ceil(mine / micro_batches)

    def passed(self, spread: Spread, micro_batches: int) -> Pass:
        """That micro-batch."""
        slices = spread.n if spread.kind == "tensor" else 1
        return replace(self.one, rows=self.rows_of(spread, micro_batches), slices=slices)

    def memory(self, spread: Spread, micro_batches: int, *, twice: bool) -> Memory:
        """Bytes on one device."""
        a, p = self.architecture, self.passed(spread, micro_batches)
        stays = held(self.parameters, spread, precision=p.precision, averages=self.averages)
        activations = sum(kept(a, p, twice=twice).values())
        again = largest_layer(a, p) if twice else 0
        copies = held(self.parameters, spread, precision=p.precision, averages=self.swapped)["averages"]
        temporary = max(loss_peak(a, p), again + _slopes(a, p), copies - activations)
        return Memory(**stays, activations=activations, temporary=temporary)

    def flops(self, *, twice: bool = False) -> int:
        """Of a whole step, on all devices together."""
        once = flops.forward(self.architecture, self.one.length, batch=self.rows, source_length=self.one.source_length)
        return 3 * once.total + (once.total - once.head - once.embedding if twice else 0)

    def wire(self, spread: Spread, micro_batches: int, *, twice: bool) -> int:
        """Bytes that one device sends in a step."""
        if spread.world == 1:
            return 0
        if spread.kind == "data":
            return wire.data(self.parameters, spread)
        if spread.kind == "fsdp":
            return wire.fsdp(self.parameters, spread, micro_batches)
        p = self.passed(spread, micro_batches)
        return wire.tensor(self.architecture, self.parameters, spread, p, micro_batches, twice=twice)


def _slopes(a: Architecture, p: Pass) -> int:
    """Gradients of values while one layer is gone back through: of the stream, and of what is widest in it."""
    found = 0
    for tower in a.towers:
        q = p.rows * length_of(tower, p)
        widest = max(tower.d_ff, tower.n_heads * tower.d_head) // p.slices
        if a.experts is not None:
            widest = max(widest, a.experts.per_token * max(a.experts.d_expert, a.d_model))
        found = max(found, q * (2 * a.d_model * p.w + 2 * widest * p.c))
    return found


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A step in one way."""

    step: Step
    spread: Spread
    micro_batches: int
    twice: bool

    @cached_property
    def memory(self) -> Memory:
        """On one device."""
        return self.step.memory(self.spread, self.micro_batches, twice=self.twice)

    @cached_property
    def wire(self) -> int:
        """Bytes that one device sends in a step."""
        return self.step.wire(self.spread, self.micro_batches, twice=self.twice)

    @property
    def needs(self) -> int:
        """The memory of a device on which it fits."""
        return ceil(self.memory.total / (1 - RESERVE))

    @property
    def parallel(self) -> str:
        """As ``run.parallel`` has it."""
        return f"tensor:{self.spread.n}" if self.spread.kind == "tensor" else self.spread.kind


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to spread a step: ``said`` as the recipe has the rest, and the nearest to it that fits, if any does."""

    said: Choice
    fits: Choice | None
    least: Choice  # as little memory as this way can do with


def ways(step: Step, spreads: Sequence[Spread], memory: int) -> list[Way]:
    """Every way on devices of ``memory`` bytes."""
    found = []
    for spread in spreads:
        choices = list(_choices(step, spread))
        fits = next((choice for choice in choices if choice.needs <= memory), None)
        found.append(Way(said=choices[0], fits=fits, least=min(choices, key=lambda choice: choice.needs)))
    return found


def best(found: Sequence[Way]) -> Choice | None:
    """What computes layers once before what does it twice, then what sends least, then the fewest micro-batches."""
    fitting = [way.fits for way in found if way.fits is not None]
    return min(fitting, key=lambda c: (c.twice and not c.step.twice, c.wire, c.micro_batches), default=None)


def spreads(world: int, kinds: Sequence[Kind] = ("data", "fsdp", "tensor")) -> list[Spread]:
    """All ways to spread a model over devices, as far as their number goes."""
    found = [Spread(kind=kind, n=1, world=world) for kind in kinds if kind == "data" or (kind == "fsdp" and world > 1)]
    teams = [n for n in range(2, world + 1) if world % n == 0] if "tensor" in kinds else []
    return found + [Spread(kind="tensor", n=n, world=world) for n in teams]


def _choices(step: Step, spread: Spread) -> Iterator[Choice]:
    """What the recipe says, then more micro-batches of fewer rows, then the same with layers computed twice."""
    most = step.rows if step.whole else ceil(step.rows / spread.readers)
    counts = [step.micro_batches]
    for rows in range(step.rows_of(spread, step.micro_batches) - 1, 0, -1) if not step.whole else ():
        if (count := ceil(most / rows)) > counts[-1]:
            counts.append(count)
    for twice in sorted({step.twice, True}):
        for count in counts:
            yield Choice(step=step, spread=spread, micro_batches=count, twice=twice)
