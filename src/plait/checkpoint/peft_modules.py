"""Modules of a foreign class: where each parameter of ours lies in them, and a module's low-rank update in ours.

A module of ours that shares its matrix with others there (GPT-2's ``c_attn``) is a block of the module's update: the
``A`` of q, k and v one above the other, their ``B`` on the diagonal, and as many columns as all have together. Where
they have the same ``A``, as when such a file was read, it is one block again.
"""

# r rank, i inputs, o outputs

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.checkpoint.adapter import AdapterError, LowRank
from plait.checkpoint.native import NATIVE
from plait.families.binding import Entry
from plait.families.operations import TRANSPOSE
from plait.parameters import parameters

Table = Mapping[str, tuple[Entry, int]]  # parameter -> the module's tensor that it is in, and which part of it


def table_of(family: Any, architecture: Architecture, layout: Any) -> tuple[Table, str]:
    """Every parameter's place in the class's modules, and the prefix that a class without a head leaves out."""
    if family is NATIVE:
        shapes = parameters(architecture)
        return {name: (Entry((name,), (name,), (shape,), (), 0), 0) for name, shape in shapes.items()}, ""
    if not hasattr(family, "usual"):
        raise AdapterError(f"adapter: plait knows no names for adapters in {family.name}, which wraps a text model.")
    return family.usual(architecture, layout), family.prefix


def entries_of(table: Table, names: Iterable[str]) -> list[Entry]:
    """The stored tensors that the parameters of these names are in, each once."""
    return list(dict.fromkeys(table[name][0] for name in names))


def turned(entry: Entry) -> bool:
    """Whether the class keeps the matrix as (in, out)."""
    return TRANSPOSE in entry.operations


def apart(entry: Entry, module: str, down: Tensor, up: Tensor, scale: float) -> Iterator[tuple[str, LowRank]]:
    """Each part's rows of ``up``; of columns that are another part's block nothing is kept."""
    rank = len(down)
    rows = sum(shape[0] for shape in entry.shapes)
    if down.ndim != 2 or up.shape != (rows, rank) or down.shape[1] != entry.shapes[0][-1]:
        raise AdapterError(
            f"{module}: its update is {tuple(up.shape)} by {tuple(down.shape)}; it should be ({rows}, r) by "
            f"(r, {entry.shapes[0][-1]})."
        )
    ups = _of_rank(entry, rank).load([up.t() if turned(entry) else up])
    for name, part in zip(entry.parts, ups, strict=True):
        kept = part.any(0) if len(ups) > 1 and up.any() else torch.ones(rank, dtype=torch.bool)
        if kept.any():
            yield name, LowRank(down[kept], part[:, kept], scale)


def joined(entry: Entry, updates: Mapping[str, LowRank]) -> tuple[Tensor, Tensor, float]:
    """``A (r, i)``, ``B (o, r)`` and the scale of the module that holds these parts."""
    if entry.gathers or len(entry.shapes[0]) != 2 or not all(o.by_rows or o is TRANSPOSE for o in entry.operations):
        raise AdapterError(f"{entry.parts[0]}: PEFT has no module for it in this family; adapt other matrices.")
    present = {name: updates[name] for name in entry.parts if name in updates}
    scale = next(iter(present.values())).scale
    blocks: list[tuple[Tensor, dict[str, Tensor]]] = []  # a matrix A, and the B of the parts that have it
    for name, update in present.items():
        up = update.up.detach() * (update.scale / scale)
        shared = next((block for block in blocks if torch.equal(block[0], update.down)), None)
        if shared is None:
            blocks.append((update.down.detach(), {name: up}))
        else:
            shared[1][name] = up
    columns = [_stored_up(entry, len(down), ups) for down, ups in blocks]
    return torch.cat([down for down, _ in blocks]), torch.cat(columns, 1), scale


def _stored_up(entry: Entry, rank: int, ups: Mapping[str, Tensor]) -> Tensor:
    """``B (o, r)`` in the order of the module's rows, 0 where a part has none."""
    like = next(iter(ups.values()))
    shapes = zip(entry.parts, entry.shapes, strict=True)
    (up,) = _of_rank(entry, rank).save([ups[name] if name in ups else like.new_zeros(s[0], rank) for name, s in shapes])
    return up.t() if turned(entry) else up


def _of_rank(entry: Entry, rank: int) -> Entry:
    """The same way of storing, of matrices with ``rank`` columns."""
    return replace(entry, shapes=tuple((shape[0], rank) for shape in entry.shapes))
