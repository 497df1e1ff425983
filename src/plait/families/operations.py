"""Invertible operations between a foreign spelling and ours: on the values of settings, and on tensors.

Each has a ``load`` and a ``save`` that undo each other, so that a rule written once is read both ways.
"""

# H query heads, K key and value heads, h head width, E experts, I an expert's width

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, Protocol

from plait.families.errors import FamilyError

if TYPE_CHECKING:
    from torch import Tensor

Fields = Mapping[str, Any]  # of an Architecture
Shape = tuple[int, ...]


# On the value of one setting


@dataclass(frozen=True)
class Conversion:
    """``load(foreign, fields) -> ours`` and ``save(ours, fields) -> foreign``; ``none``: None is one of ours."""

    load: Callable[[Any, Fields], Any]
    save: Callable[[Any, Fields], Any]
    none: bool = False


SAME = Conversion(lambda value, _: value, lambda value, _: value)


def words(table: Mapping[Any, Any], what: str) -> Conversion:
    """Foreign words for our values; where several words mean one value, the first is the one to write."""

    def load(word: Any, _: Fields) -> Any:
        if word not in table:
            raise FamilyError(f"plait has no {what} {word!r}; it has {', '.join(sorted(map(str, table)))}.")
        return table[word]

    def save(value: Any, _: Fields) -> Any:
        for word, meant in table.items():
            if meant == value:
                return word
        raise FamilyError(
            f"there is no word for the {what} {value!r} here; there is one for {', '.join(sorted(map(str, table)))}."
        )

    return Conversion(load, save)


# The table of names in transformers' ``activations.py``; the tanh forms agree to 1e-12.
ACTIVATIONS = {
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
ACTIVATION = words(ACTIVATIONS, "activation")


def preferring(*first: str, **meanings: str) -> Conversion:
    """Activation names, ``first`` being the ones a family writes; ``meanings`` are words that it takes otherwise."""
    table = {word: ACTIVATIONS[word] for word in first} | ACTIVATIONS | meanings
    return words(table, "activation")


def float32(number: float) -> float:
    """The nearest number that a float32 can hold: some libraries keep their constants in one."""
    return struct.unpack("f", struct.pack("f", number))[0]


def plus(n: int) -> Conversion:
    """Ours is the foreign number and ``n``; the foreign one is not negative."""

    def save(value: int, _: Fields) -> int:
        if value < n:
            raise FamilyError(f"position_offset: this family counts from at least {n}; here it is {value}.")
        return value - n

    return Conversion(lambda value, _: value + n, save)


def less(field: str) -> Conversion:
    """Ours is the foreign number without the field named: rows of a table in front of the first position, say."""
    return Conversion(lambda value, fields: value - fields[field], lambda value, fields: value + fields[field])


# query_pre_attn_scalar: the score's scale is its inverse square root
INVERSE_ROOT = Conversion(lambda value, _: value**-0.5, lambda value, _: round(value**-2))

# A switch for embeddings times the square root of their width
ROOT_OF_WIDTH = Conversion(
    lambda switch, fields: sqrt(fields["d_model"]) if switch else 1.0, lambda scale, _: scale != 1.0
)

# A switch for scores divided by the square root of the head's width
ROOT_OF_HEAD = Conversion(
    lambda switch, _: None if switch else 1.0,
    lambda scale, fields: scale != 1.0 or fields["d_head"] == 1,
)


def chosen(yes: Any, no: Any) -> Conversion:
    """A switch for one of two values."""
    return Conversion(
        lambda switch, _: yes if switch else no, lambda value, _: value == yes, none=yes is None or no is None
    )


# On tensors


class Target(Protocol):
    """What a stored tensor becomes: the shapes of our parameters, and the width of a head where there is one."""

    @property
    def shapes(self) -> Sequence[Shape]:
        """One for each parameter, in the order of the rule."""
        ...

    @property
    def d_head(self) -> int:
        """Of the tower the parameters are in."""
        ...


@dataclass(frozen=True)
class Operation:
    """``load(stored tensors, target) -> parameters`` and ``save(parameters, target) -> stored tensors``.

    ``by_rows``: whether it moves whole rows of a matrix only, so that a row may as well be the bytes of its blocks.
    """

    load: Callable[[list[Tensor], Target], list[Tensor]]
    save: Callable[[list[Tensor], Target], list[Tensor]]
    by_rows: bool = False


def _join(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    import torch

    return torch.cat(list(tensors), dim)


def _by_turns(tensors: Sequence[Tensor]) -> Tensor:
    """Matrices (or biases) of every expert as one, a row of each in turn."""
    import torch

    return torch.stack(list(tensors), 2).flatten(1, 2)


def stack(tensors: Iterable[Tensor], count: int) -> Tensor:
    """``count`` tensors in a new leading axis, each let go before the next is asked for; undone by ``unbind``."""
    import torch

    whole: Tensor | None = None
    for i, tensor in enumerate(tensors):
        if whole is None:
            whole = torch.empty((count, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
        if tensor.dtype != whole.dtype:
            whole = whole.to(torch.promote_types(tensor.dtype, whole.dtype))
        whole[i] = tensor
    assert whole is not None
    return whole


# (in, out), as GPT-2's Conv1D has it; a bias has one axis and stays
TRANSPOSE = Operation(lambda tensors, _: [t.t() for t in tensors], lambda tensors, _: [t.t() for t in tensors])

# Rows of several parameters one after the other: [q (H h); k (K h); v (K h)], [gate; up]
CAT = Operation(
    lambda tensors, target: list(tensors[0].split([shape[0] for shape in target.shapes])),
    lambda tensors, _: [_join(tensors)],
    by_rows=True,
)

# The same within every expert: (E, 2I, d) is [gate; up] in each
CAT_EACH = Operation(
    lambda tensors, target: list(tensors[0].split([shape[1] for shape in target.shapes], 1)),
    lambda tensors, _: [_join(tensors, 1)],
)

# Every expert's matrix as (in, out); a bias (E, out) stays
TRANSPOSE_EACH = Operation(
    lambda tensors, _: [t.transpose(1, -1) if t.ndim > 2 else t for t in tensors],
    lambda tensors, _: [t.transpose(1, -1) if t.ndim > 2 else t for t in tensors],
)

# Rows of several parameters by turns within every expert: gate 0, up 0, gate 1, up 1, ...
STRIPES = Operation(
    lambda tensors, target: [tensors[0][:, i :: len(target.shapes)] for i in range(len(target.shapes))],
    lambda tensors, _: [_by_turns(tensors)],
)

# A leading axis of 1: final_logits_bias (1, V)
ROW = Operation(lambda tensors, _: [t[0] for t in tensors], lambda tensors, _: [t[None] for t in tensors])


def _ungroup(tensors: list[Tensor], target: Target) -> list[Tensor]:
    groups = target.shapes[1][0] // target.d_head  # K
    rows = tensors[0].reshape(groups, -1, target.d_head, *tensors[0].shape[1:])  # K H/K+2 h ...
    parts = rows[:, :-2], rows[:, -2], rows[:, -1]
    return [part.reshape(shape) for part, shape in zip(parts, target.shapes, strict=True)]


def _group(tensors: list[Tensor], target: Target) -> list[Tensor]:
    groups = target.shapes[1][0] // target.d_head
    rows = _join([t.reshape(groups, -1, target.d_head, *t.shape[1:]) for t in tensors], 1)
    return [rows.reshape(-1, *rows.shape[3:])]


# Query heads of a group, then its key, then its value: rows viewed as (K, H/K + 2, h). With K = H, q k v head by head.
GROUP = Operation(_ungroup, _group, by_rows=True)


def _reorder(in_pairs: bool) -> Callable[[list[Tensor], Target], list[Tensor]]:
    """Rows of each head that come ``in_pairs`` (h/2, 2) put in halves (2, h/2), or those in halves in pairs."""

    def reorder(tensors: list[Tensor], target: Target) -> list[Tensor]:
        half = target.d_head // 2
        view = (half, 2) if in_pairs else (2, half)
        return [t.reshape(-1, *view, *t.shape[1:]).transpose(1, 2).reshape(t.shape) for t in tensors]

    return reorder


# Rows of each head in the order of interleaved rope (0, h/2, 1, h/2 + 1, ...), as llama.cpp wants Llama's; every tensor
# by its own number of heads, which is its rows over h.
INTERLEAVE = Operation(_reorder(in_pairs=True), _reorder(in_pairs=False), by_rows=True)
