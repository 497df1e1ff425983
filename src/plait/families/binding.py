"""Which stored tensors fill which parameters: a family's table spelled out for one architecture and one file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plait.architecture import Architecture
from plait.families.errors import FamilyError
from plait.families.layout import Equal, Layout, Spelling
from plait.families.operations import Operation, Shape
from plait.parameters import parameters

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Weight:
    """Where parameters are stored, and the operations from there to here; ``name`` may be a pattern."""

    name: str
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True)
class Either:
    """One of two places, by whether a field of the architecture is set; ``None`` is nowhere."""

    field: str
    yes: str | Weight | None
    no: str | Weight | None


Rule = str | Weight | Either | None


def via(name: str, *operations: Operation) -> Weight:
    """A stored name, and the operations that turn what is stored there into parameters."""
    return Weight(name, operations)


@dataclass(frozen=True)
class Entry:
    """One stored tensor and the parameters it becomes."""

    stored: str
    parts: tuple[str, ...]
    shapes: tuple[Shape, ...]
    operations: tuple[Operation, ...]
    d_head: int

    def load(self, tensor: Tensor) -> list[Tensor]:
        """Stored to ours; raises where the shape is not the one this architecture needs."""
        if tuple(tensor.shape) != self.stored_shape:
            raise FamilyError(
                f"{self.stored}: its shape is {tuple(tensor.shape)}; {self.parts[0]} of this architecture needs "
                f"{self.stored_shape}."
            )
        tensors = [tensor]
        for operation in self.operations:
            tensors = operation.load(tensors, self)
        return tensors

    def rows(self) -> list[Tensor] | None:
        """For each parameter the numbers of its rows in the stored matrix; ``None`` where rows do not stay whole."""
        import torch

        if not all(operation.by_rows for operation in self.operations):
            return None
        numbered = replace(self, shapes=tuple((shape[0], 1) for shape in self.shapes))
        return [part[:, 0] for part in numbered.load(torch.arange(self.stored_shape[0])[:, None])]

    def save(self, tensors: list[Tensor]) -> Tensor:
        """Ours to stored."""
        for operation in reversed(self.operations):
            tensors = operation.save(tensors, self)
        return tensors[0].contiguous()

    @property
    def stored_shape(self) -> Shape:
        """The shape on disk: what saving would write."""
        if not self.operations:
            return self.shapes[0]
        import torch

        return tuple(self.save([torch.empty(shape, device="meta") for shape in self.shapes]).shape)


@dataclass(frozen=True)
class Binding:
    """Every parameter of an architecture, tied to the stored tensor that fills it."""

    entries: Mapping[str, tuple[Entry, str, int]]  # parameter -> its entry, the stored name in this file, which part
    layout: Layout

    def read(self, name: str, get: Callable[[str], Tensor]) -> Tensor:
        """The parameter of that name, from ``get(stored name)``."""
        entry, stored, part = self.entries[name]
        return entry.load(get(stored))[part]

    def rows(self, name: str) -> Tensor | None:
        """Which rows of the stored matrix are that parameter's, in its order; ``None`` where rows are not whole."""
        entry, _, part = self.entries[name]
        rows = entry.rows()
        return None if rows is None else rows[part]

    def stored(self, name: str) -> str:
        """The stored tensor that the parameter of that name is in."""
        return self.entries[name][1]


def alternatives(pattern: str) -> list[str]:
    """``a.{b,c}.d`` as ``a.b.d`` and ``a.c.d``."""
    found = re.search(r"\{([^{}]*,[^{}]*)\}", pattern)
    if not found:
        return [pattern]
    return [pattern[: found.start()] + word + pattern[found.end() :] for word in found.group(1).split(",")]


def entries(
    weights: Mapping[str, Rule], architecture: Architecture, family: str, prefix: str
) -> dict[str, tuple[Entry, int]]:
    """``{parameter: (its entry, which part of it)}``; raises over a parameter that no rule names.

    ``prefix`` stands in front of every stored name but the head's.
    """
    shapes = parameters(architecture)
    found: dict[str, tuple[Entry, int]] = {}
    for pattern, rule in sorted(weights.items(), key=lambda item: not item[0].endswith((".weight", ".bias"))):
        for parts, weight, d_head in _spelled_out(pattern, rule, architecture):
            leaves = [""] if pattern.endswith((".weight", ".bias")) else [".weight", ".bias"]
            for leaf in leaves:
                names = tuple(part + leaf for part in parts)
                if names[0] in shapes and names[0] not in found:
                    stored = ("" if pattern.startswith("head.") else prefix) + weight.name + leaf
                    entry = Entry(stored, names, tuple(shapes[n] for n in names), weight.operations, d_head)
                    found |= {name: (entry, i) for i, name in enumerate(names)}
    if lost := [name for name in shapes if name not in found]:
        raise FamilyError(f"{family} has no tensor for {few(lost)}.")
    return {name: found[name] for name in shapes}


def outside_layers(weights: Mapping[str, Rule], prefix: str) -> dict[str, list[str]]:
    """``{parameter: where it may be stored}`` for embeddings, final norms and head, whatever the architecture."""
    found: dict[str, list[str]] = {}
    for pattern, rule in weights.items():
        for option in (rule.no, rule.yes) if isinstance(rule, Either) else (rule,):
            if option is None or "{i}" in pattern:
                continue
            name = option.name if isinstance(option, Weight) else option
            for ours, theirs in zip(alternatives(pattern), alternatives(name), strict=True):
                for leaf in [""] if pattern.endswith((".weight", ".bias")) else [".weight", ".bias"]:
                    place = ("" if pattern.startswith("head.") else prefix) + theirs + leaf
                    found.setdefault(ours + leaf, []).append(place)
    return found


def _spelled_out(pattern: str, rule: Rule, a: Architecture) -> Iterator[tuple[list[str], Weight, int]]:
    """A rule for each layer: our names that are stored together, where, and the width of their heads."""
    if isinstance(rule, Either):
        rule = rule.yes if getattr(a, rule.field) else rule.no
    if rule is None:
        return
    weight = rule if isinstance(rule, Weight) else Weight(rule)
    for tower in a.towers:
        if "{tower}" not in pattern and not pattern.startswith(tower.name) and "layers" in pattern:
            continue
        for i in range(tower.n_layers if "{i}" in pattern else 1):

            def spell(text: str, tower: str = tower.name, i: int = i) -> str:
                return text.replace("{tower}", tower).replace("{i}", str(i))

            ours, theirs = alternatives(spell(pattern)), alternatives(spell(weight.name))
            if len(theirs) == 1:
                yield ours, Weight(theirs[0], weight.operations), tower.d_head
            else:
                for name, stored in zip(ours, theirs, strict=True):
                    yield [name], Weight(stored, weight.operations), tower.d_head


def repeated(aliases: Mapping[str, str], table: Mapping[str, tuple[Entry, int]]) -> dict[str, tuple[str, ...]]:
    """``{parameter: its usual name, and others it may be stored under}``, for parameters that have such."""
    own = {entry.stored for entry, _ in table.values()}
    found: dict[str, tuple[str, ...]] = {}
    for alias, name in aliases.items():
        if name in table and alias not in own:
            found[name] = (*found.get(name, (table[name][0].stored,)), alias)
    return found


def tie(
    table: Mapping[str, tuple[Entry, int]],
    aliases: Mapping[str, str],
    spelling: Spelling,
    live: Collection[str],
    equal: Equal | None,
) -> tuple[Binding, frozenset[str]]:
    """Find each entry's tensor in a file, under its usual name or another; raises over those that are not there.

    Also gives the bare names of those that differ from the ``live`` one beside them, and so mean nothing.
    """
    others = repeated(aliases, table)
    dead: set[str] = set()
    bound: dict[str, tuple[Entry, str, int]] = {}
    renamed: dict[str, str] = {}
    duplicates: dict[str, str] = {}
    lost: dict[str, str] = {}
    for name, (entry, part) in table.items():
        places = sorted(others.get(name, (entry.stored,)), key=lambda place: place not in live)
        found = [stored for stored in dict.fromkeys(map(spelling.find, places)) if stored]
        if not found:
            lost[name] = entry.stored
            continue
        bound[name] = (entry, found[0], part)
        if found[0] != spelling.here(entry.stored):
            renamed[entry.stored] = found[0]
        apart = [stored for stored in found[1:] if places[0] in live and not (equal and equal(found[0], stored))]
        dead.update(map(spelling.bare, apart))
        duplicates |= {stored: name for stored in found[1:] if stored not in apart}
    if lost:
        first = few([f"{name} ({stored})" for name, stored in lost.items()])
        raise FamilyError(f"{len(lost)} parameters of {len(table)} have no tensor in the file: {first}.")
    used = {stored for _, stored, _ in bound.values()} | duplicates.keys()
    layout = Layout(spelling.prefix, renamed, duplicates, tuple(sorted(spelling.names - used)))
    return Binding(bound, layout), frozenset(dead)


def few(names: Collection[str], limit: int = 4) -> str:
    """The first of many names, and how many more there are."""
    first = list(names)[:limit]
    return ", ".join(first) + (f" and {len(names) - limit} more" if len(names) > limit else "")
