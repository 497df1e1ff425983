"""Step: one thing that a forward pass does, as data: how it is called, its formula, and where its numbers are.

A number's place is written ``array[axis axis]``, as in ``decoder.layers.@.attention.scores[h p k]``. ``@`` is the layer
that is looked at; an axis is what is chosen along it:

    h head      g its keys' head   p the token that looks   k the token that is looked at
    d of the stream's numbers      e of a head's            i pair of them      j neuron
    s of a token's experts         t of what is likeliest   * all of them       7, e+32, 2i+1: so far along
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

VARIABLES: tuple[str, ...] = ("h", "g", "p", "k", "d", "e", "i", "j", "s", "t")

Form = Literal[
    "number", "percent", "size", "index", "token", "text", "unseen", "most_token", "most_percent", "most_index", "most"
]


@dataclass(frozen=True)
class Slot:
    """What fills a field of a sentence or a formula.

    ``number``, ``percent``: the value at a place. ``size``: the length of a vector. ``index``: a variable itself.
    ``token``: the one that a variable counts. ``text``: a word from a place in the walk's texts. ``unseen``: tokens
    where a row is 0. ``most_...``: token, value or index where a row is largest; ``most`` is the value as a number.
    """

    form: Form
    at: str


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A sum of ``of`` products of two rows. ``packed``: of ``right`` only the first, second and last are kept."""

    left: str
    right: str
    of: int
    packed: bool = False


Filling = Slot | Sum | float | int | str


@dataclass(frozen=True, kw_only=True)
class Formula:
    """How a number comes about: in symbols, and with fields for the values, which ``slots`` fill."""

    symbols: str
    filled: str
    slots: Mapping[str, Filling]


@dataclass(frozen=True, kw_only=True)
class View:
    """What is drawn: values at a place with one or two ``*``, under the word ``label``.

    ``tokens``: pieces of text with their numbers. ``vector``: a row of numbers. ``rows``: a vector for each token.
    ``grid``: tokens by tokens. ``bars``: a few values with names. ``turn``: a pair of numbers before and after.
    ``layers``: sizes of the stream. Each ``*`` of a place sets a variable, in ``sets``, when a cell is chosen.
    ``scale``: what colours say: a ``signed`` number, a ``share``, or who is ``seen``.
    """

    kind: Literal["tokens", "vector", "rows", "grid", "bars", "turn", "layers"]
    label: str = ""
    at: str = ""
    sets: str = ""
    scale: Literal["signed", "share", "seen"] = "signed"
    more: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step. Texts are keys of a table of words.

    Args:
        name: within its part of the model.
        title: what it is called.
        says: sentences on what happens, and why.
        found: sentences that read something off the numbers.
        slots: what fills fields of these.
        group: the sublayer it belongs to, a key of the words; empty outside of layers.
        lane: on the residual stream itself, on a branch beside it, or where a branch is added to the stream.
        starts: a variable begins where a row is largest.
        seen: the tower whose tokens are looked at.
        check: where it is written how far the formula's value is from the pass's own, at most.
    """

    name: str
    title: str
    says: tuple[str, ...]
    found: tuple[str, ...] = ()
    formulas: tuple[Formula, ...] = ()
    views: tuple[View, ...] = ()
    slots: Mapping[str, Filling] = field(default_factory=dict)
    group: str = ""
    lane: Literal["stream", "branch", "join"] = "branch"
    starts: Mapping[str, str] = field(default_factory=dict)
    seen: str = ""
    check: str = ""
