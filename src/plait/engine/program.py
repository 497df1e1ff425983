"""Program: a tower as a list of a dozen kinds of operation over named registers, ready for torch or for kernels.

A pass reads rows of tokens, flat and without padding: those of one sequence stand together, and every row carries its
token, position, order (its index in its sequence) and sequence. Weights are canonical names; registers are matrices
with a line for each row of the pass, or for each row whose logits are wanted (``taken``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from plait.architecture import Activation, Alibi, Pooling, RelativeBias, Rope, Sinusoid
from plait.architecture import Experts as ExpertsSpec

Space = Literal["self", "memory", "pass"]  # a decoder's own cache; an encoder's states; scratch of encoder layers


@dataclass(frozen=True)
class Register:
    """A matrix of activations: ``width`` columns, a line for each row of the pass, or only for each ``taken`` one."""

    name: str
    width: int
    taken: bool = False

    def columns(self, start: int, width: int) -> View:
        """Some of its columns."""
        return View(self, start, width)

    @property
    def whole(self) -> View:
        """All of its columns."""
        return View(self, 0, self.width)


@dataclass(frozen=True)
class View:
    """``width`` columns of a register, from ``start`` on."""

    register: Register
    start: int
    width: int

    def overlaps(self, other: View) -> bool:
        """Whether some column is of both."""
        same = self.register == other.register
        return same and self.start < other.start + other.width and other.start < self.start + self.width

    def __str__(self) -> str:
        whole = self.width == self.register.width
        return self.register.name if whole else f"{self.register.name}[{self.start}:{self.start + self.width}]"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One step. ``target`` is what it writes (``Store`` writes into pages); a subclass names what it reads."""

    target: View

    @property
    def weights(self) -> tuple[str, ...]:
        """Canonical names of the parameters it reads."""
        found: list[str] = []
        for field in dataclasses.fields(self):
            if field.metadata.get("weights"):
                value = getattr(self, field.name)
                found += [v for v in (value if isinstance(value, tuple) else (value,)) if v is not None]
        return tuple(found)


def _weights(**default: object) -> object:
    """A field that holds canonical names."""
    return dataclasses.field(metadata={"weights": True}, **default)  # pyright: ignore


@dataclass(frozen=True, kw_only=True)
class Embed(Operation):
    """``scale * table[token] + positions[position + offset] + types[type]``; the sinusoid is a table too."""

    table: str = _weights()  # pyright: ignore
    scale: float = 1.0
    positions: str | None = _weights(default=None)  # pyright: ignore
    sinusoid: Sinusoid | None = None
    offset: int = 0
    types: str | None = _weights(default=None)  # pyright: ignore


@dataclass(frozen=True, kw_only=True)
class Norm(Operation):
    """LayerNorm (``centred``) or RMSNorm over each run of ``width`` columns; weights repeat over the runs, or have one
    line a run. ``offset``: the weight is 1 + w."""

    source: View
    width: int
    eps: float
    centred: bool
    offset: bool
    weight: str | None = _weights(default=None)  # pyright: ignore
    bias: str | None = _weights(default=None)  # pyright: ignore


@dataclass(frozen=True, kw_only=True)
class Linear(Operation):
    """``act(x W^T + b)``, several matrices stacked to one; with ``add``: ``target = skip * target + scale * that``."""

    source: View
    weight: tuple[str, ...] = _weights()  # pyright: ignore
    bias: tuple[str | None, ...] = _weights()  # pyright: ignore
    activation: Activation | None = None
    add: bool = False
    skip: float = 1.0
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Clamp(Operation):
    """Every value into [-limit, limit], in place."""

    limit: float


@dataclass(frozen=True, kw_only=True)
class Rotate(Operation):
    """Turn the first dimensions of every head to the row's position, in place (Su et al. 2021)."""

    d_head: int
    rope: Rope


@dataclass(frozen=True, kw_only=True)
class Store(Operation):
    """Keep keys (``target``) and ``values`` ``(rows, kv_heads * d_head)`` in a layer's pages."""

    values: View
    space: Space
    layer: int
    d_head: int


@dataclass(frozen=True, kw_only=True)
class Attend(Operation):
    """``softmax(cap(scale * Q K^T) + bias) V`` over what the row's sequence holds in a layer's pages.

    ``causal``: no further than the row itself. The bias is ``alibi``'s, or a ``relative`` one with its weight.
    ``sinks``: a score for each head that takes its share of the softmax.
    """

    queries: View
    space: Space
    layer: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    scale: float
    causal: bool
    window: int | None = None
    softcap: float | None = None
    alibi: Alibi | None = None
    relative: RelativeBias | None = None
    relative_weight: str | None = _weights(default=None)  # pyright: ignore
    sinks: str | None = _weights(default=None)  # pyright: ignore


@dataclass(frozen=True, kw_only=True)
class Activate(Operation):
    """``act(x)``, in place."""

    activation: Activation


@dataclass(frozen=True, kw_only=True)
class Gate(Operation):
    """``act(target) * (up + offset)``, in place of the gate, which is cut above ``limit``, and ``up`` to both sides."""

    up: View
    activation: Activation
    limit: float | None = None
    offset: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Route(Operation):
    """Logits of all experts become, in place, what each that is picked counts, and 0 for the others."""

    spec: ExpertsSpec
    score_bias: str | None = _weights(default=None)  # pyright: ignore


@dataclass(frozen=True, kw_only=True)
class Experts(Operation):
    """``sum of routes_e * expert_e(source)`` over the experts that count for a row, and ``sigmoid(shared_gate) *
    shared``. The experts of a parameter ``(e, out, in)`` are matrices of their own: ``expert(name, e)``."""

    source: View
    routes: View
    shared: View | None = None
    shared_gate: View | None = None
    n_experts: int
    per_token: int
    activation: Activation
    limit: float | None = None
    offset: float = 0.0
    gate: str | None = _weights(default=None)  # pyright: ignore
    up: str = _weights()  # pyright: ignore
    down: str = _weights()  # pyright: ignore
    gate_bias: str | None = _weights(default=None)  # pyright: ignore
    up_bias: str | None = _weights(default=None)  # pyright: ignore
    down_bias: str | None = _weights(default=None)  # pyright: ignore


@dataclass(frozen=True, kw_only=True)
class Add(Operation):
    """``target = skip * target + scale * source``: a residual stream takes a branch."""

    source: View
    skip: float = 1.0
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Take(Operation):
    """The rows that are wanted."""

    source: View


@dataclass(frozen=True, kw_only=True)
class Pool(Operation):
    """One line for each sequence: its first row, its last, or the mean."""

    source: View
    pooling: Pooling


@dataclass(frozen=True, kw_only=True)
class Cap(Operation):
    """``softcap * tanh(scale * x / softcap)``, or ``scale * x`` alone, in place."""

    scale: float = 1.0
    softcap: float | None = None


STREAM = "x"  # the name of the register that layers add to


@dataclass(frozen=True)
class Program:
    """Operations in order, and the register that holds the result."""

    name: str
    operations: tuple[Operation, ...]
    output: Register
    causal: bool

    @cached_property  # asked for at every step
    def registers(self) -> tuple[Register, ...]:
        """Every register that is touched, in order of appearance."""
        found: dict[Register, None] = {}
        for operation in self.operations:
            for view in views(operation):
                found[view.register] = None
        return tuple(found)

    @cached_property
    def states(self) -> Register:
        """The residual stream, at the end a tower's last hidden states: what the embedding is written to."""
        return next(register for register in self.registers if register.name == STREAM)

    @cached_property
    def pools(self) -> bool:
        """Whether the head has one line for each sequence."""
        return any(isinstance(operation, Pool) for operation in self.operations)


def expert(name: str, number: int) -> str:
    """One expert's matrix in a parameter that has them all."""
    return f"{name}[{number}]"


def whole(name: str) -> tuple[str, int | None]:
    """The parameter of a name, and which expert of it, if one is meant."""
    parameter, bracket, number = name.partition("[")
    return parameter, int(number.removesuffix("]")) if bracket else None


def views(operation: Operation) -> Iterator[View]:
    """Everything an operation reads or writes in registers."""
    for field in dataclasses.fields(operation):
        value = getattr(operation, field.name)
        if isinstance(value, View):
            yield value
