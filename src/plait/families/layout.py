"""How one file spells its family's names: a missing prefix, older endings, repeated tensors, tensors kept aside."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

Equal = Callable[[str, str], bool]  # whether two stored tensors are the same


@dataclass(frozen=True)
class Layout:
    """How one file spells its family's names: kept, so that saving back writes the names that were there."""

    prefix: str = ""  # the family's own, where the file has it
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])  # usual name -> the older spelling in the file
    duplicates: Mapping[str, str] = field(default_factory=dict[str, str])  # stored name -> the parameter it repeats
    leftovers: tuple[str, ...] = ()  # stored names that fill no parameter
    together: bool = False  # whether all experts of a layer are in one tensor
    head: str | None = None  # of several classes with like heads, the ending of the one whose names these are
    outer: Mapping[str, str] = field(default_factory=dict[str, str])  # of a text model in a wrapper: its name in there

    def spell(self, name: str, usual_prefix: str) -> str:
        """The stored name in this file of a tensor's usual name."""
        here = self.prefix + name.removeprefix(usual_prefix) if name.startswith(usual_prefix) else name
        here = self.renamed.get(name, here)
        return self.outer.get(here, here)


@dataclass(frozen=True)
class Spelling:
    """The names in one file, to be found by their usual ones."""

    names: frozenset[str]
    usual_prefix: str
    older: Mapping[str, str]  # ending -> the older one
    prefix: str  # the usual one, another that published files have, or nothing
    others: Mapping[str, str]  # a name without prefix and leaf, {i} for its layer -> another for the same

    @classmethod
    def of(
        cls,
        names: Collection[str],
        prefixes: tuple[str, ...],
        older: Mapping[str, str],
        others: Mapping[str, str],
    ) -> Spelling:
        """Read off the names which of the prefixes is there; the first is the usual one."""
        there = (prefix for prefix in prefixes if any(name.startswith(prefix) for name in names))
        return cls(frozenset(names), prefixes[0], older, next(there, ""), others)

    def here(self, usual: str) -> str:
        """A usual name under this file's prefix."""
        return self.prefix + usual.removeprefix(self.usual_prefix) if usual.startswith(self.usual_prefix) else usual

    def find(self, *usual: str) -> str | None:
        """The first of some usual names that is in the file, as it is written there."""
        for name in map(self.here, usual):
            old = [name.removesuffix(new) + ending for new, ending in self.older.items() if name.endswith(new)]
            for candidate in (name, *old, *self._another(name)):
                if candidate in self.names:
                    return candidate
        return None

    def _another(self, name: str) -> list[str]:
        """The name of another kind, where the family has one for it."""
        stem, _, leaf = name.removeprefix(self.prefix).rpartition(".")
        layer = re.search(r"(?<=\.)\d+(?=\.)", stem)
        usual = stem if layer is None else stem[: layer.start()] + "{i}" + stem[layer.end() :]
        if usual not in self.others:
            return []
        return [self.prefix + self.others[usual].replace("{i}", layer[0] if layer else "") + "." + leaf]

    def bare(self, name: str) -> str:
        """The usual name of one in the file, without its prefix."""
        for new, ending in self.older.items():
            if name.endswith(ending):
                name = name.removesuffix(ending) + new
        return name.removeprefix(self.prefix).removeprefix(self.usual_prefix)
