"""Which stored tensors fill which parameters: a family's table spelled out for one architecture and one file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plait.architecture import Architecture
from plait.families.asking import asking
from plait.families.errors import FamilyError
from plait.families.layout import Equal, Layout, Spelling
from plait.families.operations import Operation, Shape, stack
from plait.parameters import parameters

if TYPE_CHECKING:
    from torch import Tensor


LEAVES = (".weight", ".bias")


@dataclass(frozen=True)
class Weight:
    """Where parameters are stored, and the operations from there to here; ``name`` may be a pattern."""

    name: str
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True)
class Either:
    """One of two places, by whether a field of the architecture is set (or is ``value``); ``None`` is nowhere."""

    field: str
    yes: str | Weight | None
    no: str | Weight | None
    value: Any = None

    def choice(self, a: Architecture) -> str | Weight | None:
        """The place that holds for this architecture."""
        found = getattr(a, self.field)
        return self.yes if (found if self.value is None else found == self.value) else self.no


Rule = str | Weight | Either | None  # None: the family has no such tensor


def via(name: str, *operations: Operation) -> Weight:
    """A stored name, and the operations that turn what is stored there into parameters."""
    return Weight(name, operations)


@dataclass(frozen=True)
class Entry:
    """The stored tensors that belong together, and the parameters they become.

    It is one tensor, or with ``gathers`` one for each expert (or head), stacked along a new leading axis.
    """

    stored: tuple[str, ...]
    parts: tuple[str, ...]
    shapes: tuple[Shape, ...]
    operations: tuple[Operation, ...]
    d_head: int
    gathers: bool = False

    def load(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Stored to ours, taken one by one; raises where a shape is not the one this architecture needs."""
        checked = self._checked(tensors)
        ours = [stack(checked, len(self.stored))] if self.gathers else list(checked)
        for operation in self.operations:
            ours = operation.load(ours, self)
        return ours

    def _checked(self, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
        needed = self.stored_shape
        for name, tensor in zip(self.stored, tensors, strict=True):
            if tuple(tensor.shape) != needed:
                raise FamilyError(
                    f"{name}: its shape is {tuple(tensor.shape)}; {self.parts[0]} of this architecture needs {needed}."
                )
            yield tensor

    def rows(self) -> list[Tensor] | None:
        """For each parameter the numbers of its rows in the stored matrix; ``None`` where rows do not stay whole."""
        import torch

        if self.gathers or not all(operation.by_rows for operation in self.operations):
            return None
        numbered = replace(self, shapes=tuple((shape[0], 1) for shape in self.shapes))
        return [part[:, 0] for part in numbered.load([torch.arange(self.stored_shape[0])[:, None]])]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        """Ours to stored."""
        for operation in reversed(self.operations):
            tensors = operation.save(tensors, self)
        return [tensor.contiguous() for tensor in (tensors[0] if self.gathers else tensors)]

    @property
    def stored_shape(self) -> Shape:
        """The shape on disk, of each where there are several: what saving would write."""
        if not self.operations:
            return self.shapes[0][1:] if self.gathers else self.shapes[0]
        import torch

        return tuple(self.save([torch.empty(shape, device="meta") for shape in self.shapes])[0].shape)


@dataclass(frozen=True)
class Binding:
    """Every parameter of an architecture, tied to the stored tensors that fill it."""

    entries: Mapping[str, tuple[Entry, tuple[str, ...], int]]  # parameter -> entry, its names in this file, which part
    layout: Layout

    def read(self, name: str, get: Callable[[str], Tensor]) -> Tensor:
        """The parameter of that name, from ``get(stored name)``."""
        entry, stored, part = self.entries[name]
        return entry.load(map(get, stored))[part]

    def rows(self, name: str) -> Tensor | None:
        """Which rows of the stored matrix are that parameter's, in its order; ``None`` where rows are not whole."""
        entry, _, part = self.entries[name]
        rows = entry.rows()
        return None if rows is None else rows[part]

    def stored(self, name: str) -> str:
        """The stored tensor that the parameter of that name is in, or the first of many."""
        return self.entries[name][1][0]


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

    ``prefix`` stands in front of every stored name but the head's; ``{e}`` counts along the leading axis.
    """
    shapes = parameters(architecture)
    found: dict[str, tuple[Entry, int]] = {}
    exact_first = sorted(weights.items(), key=lambda item: not item[0].endswith(LEAVES))
    for pattern, rule in exact_first:
        for parts, weight, d_head in _spelled_out(pattern, rule, architecture):
            for leaf in [""] if pattern.endswith(LEAVES) else ["", *LEAVES]:
                names = tuple(part + leaf for part in parts)
                if names[0] in found or not all(name in shapes for name in names):
                    continue
                stored = _under(prefix, pattern) + weight.name + leaf
                gathers = "{e}" in stored
                counted = tuple(stored.replace("{e}", str(e)) for e in range(shapes[names[0]][0] if gathers else 1))
                needed = tuple(shapes[name] for name in names)
                entry = Entry(counted, names, needed, weight.operations, d_head, gathers)
                found |= {name: (entry, part) for part, name in enumerate(names)}
    if lost := [name for name in shapes if name not in found]:
        fields = asking(architecture, lost)
        asked = f", which {' and '.join(fields)} {'asks' if len(fields) == 1 else 'ask'} for" if fields else ""
        raise FamilyError(f"{family} has no tensor for {few(lost)}{asked}.")
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
                for leaf in [""] if pattern.endswith(LEAVES) else LEAVES:
                    found.setdefault(ours + leaf, []).append(_under(prefix, pattern) + theirs + leaf)
    return found


def _under(prefix: str, pattern: str) -> str:
    """What stands in front of a stored name: the prefix, but in a head."""
    return "" if pattern.startswith("head.") else prefix


def _spelled_out(pattern: str, rule: Rule, a: Architecture) -> Iterator[tuple[list[str], Weight, int]]:
    """A rule for each layer: our names that are stored together, where, and the width of their heads.

    Where layers are shared, ``{g}`` is the group of layer ``{i}``, and ``{j}`` its number in that group.
    """
    if isinstance(rule, Either):
        rule = rule.choice(a)
    if rule is None:
        return
    weight = rule if isinstance(rule, Weight) else Weight(rule)
    for tower in a.towers:
        if "{tower}" not in pattern and not pattern.startswith(tower.name) and "layers" in pattern:
            continue
        for i in range(tower.n_layers if "{i}" in pattern else 1):

            def spell(text: str, tower: str = tower.name, i: int = i) -> str:
                group, inner = divmod(i, a.shared_layers.inner if a.shared_layers else 1)
                counted = text.replace("{g}", str(group)).replace("{j}", str(inner))
                return counted.replace("{tower}", tower).replace("{i}", str(i))

            ours, theirs = alternatives(spell(pattern)), alternatives(spell(weight.name))
            if len(theirs) == 1:
                yield ours, Weight(theirs[0], weight.operations), tower.d_head
            else:
                for name, stored in zip(ours, theirs, strict=True):
                    yield [name], Weight(stored, weight.operations), tower.d_head


def repeated(aliases: Mapping[str, str], table: Mapping[str, tuple[Entry, int]]) -> dict[str, tuple[str, ...]]:
    """``{parameter: its usual name, and others it may be stored under}``, for parameters that have such."""
    own = {stored for entry, _ in table.values() for stored in entry.stored}
    found: dict[str, tuple[str, ...]] = {}
    for alias, name in aliases.items():
        if name in table and alias not in own:
            found[name] = (*found.get(name, table[name][0].stored), alias)
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
    bound: dict[str, tuple[Entry, tuple[str, ...], int]] = {}
    renamed: dict[str, str] = {}
    duplicates: dict[str, str] = {}
    lost: dict[str, str] = {}
    for name, (entry, part) in table.items():
        here: list[str] = []
        for usual in entry.stored:
            places = sorted(others.get(name, (usual,)), key=lambda place: place not in live)
            found = [stored for stored in dict.fromkeys(map(spelling.find, places)) if stored]
            if not found:
                lost.setdefault(name, usual)
                continue
            here.append(found[0])
            if found[0] != spelling.here(usual):
                renamed[usual] = found[0]
            apart = [stored for stored in found[1:] if places[0] in live and not (equal and equal(found[0], stored))]
            dead.update(map(spelling.bare, apart))
            duplicates |= {stored: name for stored in found[1:] if stored not in apart}
        bound[name] = (entry, tuple(here), part)
    if lost:
        first = few([f"{name} ({stored})" for name, stored in lost.items()])
        raise FamilyError(f"{len(lost)} parameters of {len(table)} have no tensor in the file: {first}.")
    used = {stored for _, here, _ in bound.values() for stored in here} | duplicates.keys()
    layout = Layout(spelling.prefix, renamed, duplicates, tuple(sorted(spelling.names - used)))
    return Binding(bound, layout), frozenset(dead)


def few(names: Collection[str], limit: int = 4) -> str:
    """The first of many names, and how many more there are."""
    first = list(names)[:limit]
    return ", ".join(first) + (f" and {len(names) - limit} more" if len(names) > limit else "")
