"""What a family says of weights: its names for parameters, which stored tensors fill them, and what is left over.

``bind`` reads weights, ``export`` writes them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self

from plait.architecture import Architecture
from plait.families.binding import Binding, Entry, Rule, alternatives, entries, few, outside_layers, repeated, tie
from plait.families.errors import FamilyError
from plait.families.layout import Equal, Layout, Spelling

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """The weights of one class of models.

    ``name``: what messages call it.
    ``weights``: canonical names -> stored ones. ``{tower}``, ``{i}`` and ``{a,b}`` are spelled out (of shared layers
    ``{g}`` and ``{j}``, group and number in it), ``{e}`` counts the tensors that are stacked into one parameter
    (experts, heads); without ``.weight`` or ``.bias`` a rule is for both. The stored names stand under ``prefix``, but
    for the head's.
    ``prefix``: what a model with a head puts in front; a file of the bare model leaves it out. ``prefixes``: others
    that published files have there.
    ``aliases``: stored names that repeat a parameter; one in ``live`` is the one that counts where they differ.
    ``older``: endings that older files spell differently. ``others``: stored names, under any of the prefixes, and
    what they are in files that have names of another kind.
    ``leftovers``: patterns for the whole name, without prefix, of tensors that are kept aside.
    ``sinusoids``: patterns of tables that the class computes and a file may hold: its reader may compare them.
    ``further``: what a layer behind the last holds if it predicts further tokens; such layers are kept aside too.
    ``together``: rules of files that hold all experts of a layer in one tensor, ``experts.gate_up_proj``.
    """

    name: str
    weights: Mapping[str, Rule]
    prefix: str = ""
    prefixes: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    live: frozenset[str] = frozenset()
    older: Mapping[str, str] = field(default_factory=dict[str, str])
    others: Mapping[str, str] = field(default_factory=dict[str, str])
    leftovers: tuple[str, ...] = ()
    sinusoids: tuple[str, ...] = ()
    further: str = ""
    together: Mapping[str, Rule] = field(default_factory=dict[str, Rule])

    @property
    def title(self) -> str:
        """What sentences about what it cannot say call it."""
        return self.name

    @cached_property
    def places(self) -> dict[str, list[str]]:
        """Where parameters outside the layers may be stored, their repetitions included."""
        found = outside_layers(self.weights, self.prefix)
        for alias, name in self.aliases.items():
            found[name].append(alias)
        return found

    @cached_property
    def head_tensors(self) -> frozenset[str]:
        """Usual stored names of everything in the head."""
        return frozenset(place for name, places in self.places.items() if name.startswith("head.") for place in places)

    @cached_property
    def _unread_heads(self) -> frozenset[str]:
        """Names without prefix of what is in a head: the bare class may leave it unread."""
        return frozenset(name.removeprefix(self.prefix) for name in self.head_tensors)

    def _spelling(self, names: Collection[str]) -> Spelling:
        pairs = [zip(alternatives(usual), alternatives(other), strict=True) for usual, other in self.others.items()]
        others = {usual: other for pair in pairs for usual, other in pair}
        return Spelling.of(names, (self.prefix, *self.prefixes), self.older, others)

    def _entries(self, architecture: Architecture) -> dict[str, tuple[Entry, int]]:
        return entries(self.weights, architecture, self.title, self.prefix)

    def usual(self, architecture: Architecture, layout: Layout | None = None) -> dict[str, tuple[Entry, int]]:
        """Every parameter's stored tensors under their usual names, and which part of them it is; ``layout`` tells
        between classes with like heads. What the class itself calls them, for files that speak of its modules."""
        return self._entries(architecture)

    def bind(self, architecture: Architecture, names: Collection[str], equal: Equal | None = None) -> Binding:
        """Tie every parameter to the stored tensor that fills it.

        ``equal`` tells a tensor that repeats a ``live`` one from one that means nothing; without it, it is kept aside.
        Raises ``FamilyError`` naming parameters that no tensor fills, and tensors that no rule knows.
        """
        if self.together and any(name.endswith(".experts.gate_up_proj") for name in names):
            binding = self._merged.bind(architecture, names, equal)
            return dataclasses.replace(binding, layout=dataclasses.replace(binding.layout, together=True))
        spelling, aliases = self._spelling(names), dict(self.aliases)
        if architecture.tied:
            aliases |= dict.fromkeys(self.places["head.output.weight"], "embedding.tokens.weight")
        binding, dead = tie(self._entries(architecture), aliases, spelling, self.live, equal)
        known = dead if architecture.head else dead | self._unread_heads
        further = self._further(architecture, spelling)
        strange = [
            name
            for name, bare in zip(binding.layout.leftovers, map(spelling.bare, binding.layout.leftovers), strict=True)
            if bare not in known
            and not bare.startswith(further)
            and not any(re.fullmatch(pattern, bare) for pattern in (*self.leftovers, *self.sinusoids))
        ]
        if strange:
            raise FamilyError(f"{self.name} has no place for {len(strange)} tensors in the file: {few(strange)}.")
        return binding

    def _further(self, architecture: Architecture, spelling: Spelling) -> tuple[str, ...]:
        """How the names of layers begin that predict further tokens."""
        n_layers = architecture.n_decoder_layers
        starts = [f"layers.{i}." for i in range(n_layers, n_layers + 8)] if self.further else []
        return tuple(start for start in starts if spelling.find(self.prefix + start + self.further))

    @cached_property
    def _merged(self) -> Self:
        """These weights, as files have it that hold all experts of a layer together."""
        return dataclasses.replace(self, weights={**self.weights, **self.together}, together={})

    def stored_sinusoids(self, names: Collection[str]) -> list[str]:
        """Those of the stored ``names`` that are tables of sinusoids."""
        bare = self._spelling(names).bare if self.sinusoids else str
        return [name for name in sorted(names) if any(re.fullmatch(pattern, bare(name)) for pattern in self.sinusoids)]

    def _compare_repeated(self, architecture: Architecture, spelling: Spelling, equal: Equal) -> None:
        """A tensor that differs from the one it should repeat would be lost."""
        for name, places in repeated(self.aliases, self._entries(architecture)).items():
            if not self.live.isdisjoint(places):
                continue
            found = [stored for stored in dict.fromkeys(map(spelling.find, places)) if stored]
            for other in found[1:]:
                if not equal(found[0], other):
                    raise FamilyError(
                        f"{other}: it differs from {found[0]}; {self.name} has one tensor for both, {name}."
                    )

    def export(
        self, architecture: Architecture, get: Callable[[str], Tensor], layout: Layout
    ) -> Iterator[tuple[str, Tensor]]:
        """Stored names and tensors from ``get(canonical name)``, spelled by ``layout``, without its leftovers."""
        if self.together and layout.together:
            yield from self._merged.export(architecture, get, layout)
            return
        for entry in dict.fromkeys(entry for entry, _ in self._entries(architecture).values()):
            tensors = entry.save([get(name) for name in entry.parts])
            yield from zip((layout.spell(stored, self.prefix) for stored in entry.stored), tensors, strict=True)
            for alias, name in layout.duplicates.items():
                if name == entry.parts[0]:
                    yield alias, tensors[0]
