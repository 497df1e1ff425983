"""A family of checkpoints as data: its settings and its weights, each rule read and written by one mechanism.

``architecture`` reads a config, ``config`` writes one; ``bind`` reads weights, ``export`` writes them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from plait.architecture import Architecture, ArchitectureError
from plait.families.binding import Binding, Entry, Rule, entries, few, outside_layers
from plait.families.errors import FamilyError
from plait.families.knobs import KNOWN, refuse
from plait.families.layout import Layout, Spelling
from plait.families.settings import Reading, Setting, merged

if TYPE_CHECKING:
    from torch import Tensor

Equal = Callable[[str, str], bool]

# Fields of a vocabulary head, without meaning where there is none
HEAD_FIELDS = frozenset({"head_transform", "logit_bias", "logit_scale", "logit_softcap"})
WITH_HEAD = re.compile(r"\w*(ForCausalLM|LMHeadModel|ForMaskedLM|ForPreTraining|ForConditionalGeneration|MTModel)")
BARE = re.compile(r"\w*(?<!Encoder)(?<!DoubleHeads)Model")
# What one config keeps of another, whatever its family
IDS = re.compile(r"(\w+_token_id|dtype|torch_dtype|transformers_version|id2label|label2id)")


@dataclass(frozen=True, kw_only=True)
class Family:
    """One dialect of checkpoints.

    ``settings``: a field of Architecture -> the rule that says it, or the value it always has here.
    ``weights``: canonical names -> stored ones. ``{tower}``, ``{i}`` and ``{a,b}`` are spelled out; without ``.weight``
    or ``.bias`` a rule is for both. The stored names stand under ``prefix``, but for the head's.
    ``prefix``: what a model with a head puts in front; a file of the bare model leaves it out.
    ``tied``: the class's default for ``tie_word_embeddings``; ``None`` where the class does not heed that key.
    ``aliases``: stored names that repeat a parameter. ``older``: endings that older files spell differently.
    ``leftovers``: patterns for the whole name, without prefix, of tensors that are kept aside.
    ``synonyms``: other names of settings. ``ignored``: settings that the class does not use.
    ``extra``: settings to write that no field says.
    """

    name: str
    model_types: tuple[str, ...]
    classes: tuple[str, str]  # with a vocabulary head, and without
    settings: Mapping[str, Any]
    weights: Mapping[str, Rule]
    head: Literal["language", "masked"] = "language"
    tied: bool | None = False
    prefix: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    older: Mapping[str, str] = field(default_factory=dict[str, str])
    leftovers: tuple[str, ...] = ()
    synonyms: Mapping[str, str] = field(default_factory=dict[str, str])
    ignored: frozenset[str] = frozenset()
    extra: Callable[[Architecture], dict[str, Any]] = lambda _: {}

    def relative(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        weights: Mapping[str, Rule] | None = None,
        **changes: Any,
    ) -> Family:
        """A family that is this one but for what is given; a weight's rule of ``None`` is no rule."""
        changes = {"model_types": (name,), **changes}
        return dataclasses.replace(
            self,
            name=name,
            settings={**self.settings, **(settings or {})},
            weights={**self.weights, **(weights or {})},
            **changes,
        )

    # Settings

    @cached_property
    def rules(self) -> dict[str, Setting]:
        """The fields that some setting says."""
        return {field: rule for field, rule in self.settings.items() if isinstance(rule, Setting)}

    @cached_property
    def keys(self) -> frozenset[str]:
        """Every setting that is read."""
        return frozenset(key for rule in self.rules.values() for key in rule.keys)

    def architecture(
        self, config: Mapping[str, Any], names: Collection[str] | None = None, equal: Equal | None = None
    ) -> Architecture:
        """The architecture that a config says together with the tensors beside it.

        ``names`` are the stored tensors, ``equal(a, b)`` compares two of them; without any the config is believed.
        Raises ``FamilyError`` over what plait does not have, and where config and tensors contradict each other.
        """
        config = {self.synonyms.get(key, key): value for key, value in config.items()}
        refuse(self.name, config, {*self.keys, *self.ignored})
        spelling = Spelling.of(names, self.prefix, self.older) if names else None
        head = self._head(config, spelling)
        rules = {name: rule for name, rule in self.settings.items() if head is not None or name not in HEAD_FIELDS}
        fields = dict(Reading(config, rules, names or None))
        tied = head is not None and self._is_tied(config, spelling, equal)
        if spelling and equal:
            self._compare_aliases(spelling, equal)
        try:
            return Architecture(**fields, head=head, tied=tied)
        except ArchitectureError as error:
            raise FamilyError(f"this {self.name} config describes no Transformer: {error}") from error

    def unread(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """The settings that nothing reads and that are not known to be without effect."""
        config = {self.synonyms.get(key, key): value for key, value in config.items()}
        inside = [name for rule in self.rules.values() for name in rule.unread(config)]
        return (*sorted(config.keys() - self.keys - self.ignored - KNOWN), *sorted(set(inside)))

    def _head(self, config: Mapping[str, Any], spelling: Spelling | None) -> Literal["language", "masked"] | None:
        """From the class named in the config; where none is, from the tensors."""
        for name in config.get("architectures") or ():
            if WITH_HEAD.fullmatch(name):
                return self.head
            if BARE.fullmatch(name):
                return None
            raise FamilyError(f"architectures: plait has no head for {name}; it has {' and '.join(self.classes)}.")
        if spelling is None or spelling.find(*self.head_tensors):
            return self.head
        flag = _tie_flag(config)
        is_whole = bool(spelling.prefix) or (self.tied if flag is None else flag)
        return self.head if self.head == "language" and is_whole else None

    def _is_tied(self, config: Mapping[str, Any], spelling: Spelling | None, equal: Equal | None) -> bool:
        """Config and content together: a stored head that differs wins, a contradiction is an error."""
        flag = _tie_flag(config)
        usual = self.tied if self.tied is not None else True
        if spelling is None:
            return usual if flag is None else flag
        heads, tables = self.places["head.output.weight"], self.places["embedding.tokens.weight"]
        head, table = spelling.find(*heads), spelling.find(*tables)
        if head is None or table is None:
            if flag is False:
                lost = heads[0] if head is None else tables[0]
                raise FamilyError(
                    f"tie_word_embeddings: it is false, but the file has no {lost}; one of them is wrong."
                )
            return True
        if equal is None or not equal(head, table):
            return False
        return usual if flag is None else flag

    def _compare_aliases(self, spelling: Spelling, equal: Equal) -> None:
        """A repeated tensor that differs from the one it repeats would be lost."""
        for alias, canonical in self.aliases.items():
            first, second = spelling.find(self.places[canonical][0]), spelling.find(alias)
            if first and second and first != second and not equal(first, second):
                raise FamilyError(f"{second}: it differs from {first}, and {self.name} has one tensor for both.")

    def config(self, architecture: Architecture, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The config that says exactly this architecture; ``base``, where there is one, changed as little as can be.

        Raises ``FamilyError`` naming the field that this family cannot say.
        """
        mine = base is not None and base.get("model_type") in self.model_types
        if base is not None and mine:
            for candidate in (dict(base), {**base, "tie_word_embeddings": architecture.tied}):
                if self._says(candidate, architecture):
                    return candidate
        kept = {k: v for k, v in (base or {}).items() if (k not in self.keys if mine else IDS.fullmatch(k))}
        fields = {f.name: getattr(architecture, f.name) for f in dataclasses.fields(architecture)}
        parts = {
            name: rule.save(fields[name], fields)
            for name, rule in self.rules.items()
            if architecture.head is not None or name not in HEAD_FIELDS
        }
        written = {
            "architectures": [self.classes[0 if architecture.head else 1]],
            "model_type": self.model_types[0],
            **self.extra(architecture),
            **kept,
            **merged(parts, self.name),
        }
        written["architectures"] = [self.classes[0 if architecture.head else 1]]
        if architecture.head:
            written["tie_word_embeddings"] = architecture.tied
        read = self._read_back(written, architecture)
        for name, (theirs, ours) in read.difference(architecture).items():
            if not _same(theirs, ours) and not (name == "max_length" and ours is None):
                raise FamilyError(f"{self.name} cannot say {name}: {ours!r}; its config would read {theirs!r}.")
        return written

    def _says(self, config: Mapping[str, Any], architecture: Architecture) -> bool:
        """Whether a config reads to this architecture, here and in the library that reads no tensors first."""
        try:
            read = self._read_back(config, architecture)
        except FamilyError:
            return False
        flag = _tie_flag(config)
        believed = self.tied if flag is None else flag
        if architecture.head is not None and self.tied is not None and believed != architecture.tied:
            return False
        return all(_same(*pair) for pair in read.difference(architecture).values())

    def _read_back(self, config: Mapping[str, Any], architecture: Architecture) -> Architecture:
        names = {entry.stored for entry, _ in entries(self.weights, architecture, self.name, self.prefix).values()}
        return self.architecture(config, names, lambda first, second: False)

    # Weights

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

    def bind(self, architecture: Architecture, names: Collection[str]) -> Binding:
        """Tie every parameter to the stored tensor that fills it.

        Raises ``FamilyError`` naming parameters that no tensor fills, and tensors that no rule knows.
        """
        spelling = Spelling.of(names, self.prefix, self.older)
        table = entries(self.weights, architecture, self.name, self.prefix)
        own = {entry.stored for entry, _ in table.values()}
        aliases = {alias: name for alias, name in self.aliases.items() if alias not in own}
        if architecture.tied:
            aliases |= dict.fromkeys(self.places["head.output.weight"], "embedding.tokens.weight")
        bound: dict[str, tuple[Entry, str, int]] = {}
        renamed: dict[str, str] = {}
        duplicates: dict[str, str] = {}
        lost: dict[str, str] = {}
        for name, (entry, part) in table.items():
            usual = (entry.stored, *(alias for alias, meant in aliases.items() if meant == name))
            found = [stored for stored in dict.fromkeys(map(spelling.find, usual)) if stored]
            if not found:
                lost[name] = entry.stored
                continue
            bound[name] = (entry, found[0], part)
            if found[0] != spelling.here(entry.stored):
                renamed[entry.stored] = found[0]
            duplicates |= {stored: name for stored in found[1:]}
        if lost:
            first = few([f"{name} ({stored})" for name, stored in lost.items()])
            raise FamilyError(f"{len(lost)} parameters of {len(table)} have no tensor in the file: {first}.")
        used = {stored for _, stored, _ in bound.values()} | duplicates.keys()
        rest = [name for name in names if name not in used]
        if strange := [name for name in rest if not self._is_leftover(spelling.bare(name), architecture)]:
            raise FamilyError(f"{self.name} has no place for {len(strange)} tensors in the file: {few(strange)}.")
        return Binding(bound, Layout(spelling.prefix, renamed, duplicates, tuple(sorted(rest))))

    def _is_leftover(self, bare: str, architecture: Architecture) -> bool:
        """Known to be without a place here: buffers, other heads, and the head of a model read without one."""
        known = any(re.fullmatch(pattern, bare) for pattern in self.leftovers)
        return known or (architecture.head is None and bare in self.head_tensors)

    def export(
        self, architecture: Architecture, get: Callable[[str], Tensor], layout: Layout | None = None
    ) -> Iterator[tuple[str, Tensor]]:
        """Stored names and tensors from ``get(canonical name)``, spelled by ``layout``, without its leftovers."""
        layout = layout or Layout(prefix=self.prefix if architecture.head else "")
        table = entries(self.weights, architecture, self.name, self.prefix)
        for entry in dict.fromkeys(entry for entry, _ in table.values()):
            tensor = entry.save([get(name) for name in entry.parts])
            yield layout.spell(entry.stored, self.prefix), tensor
            for alias, name in layout.duplicates.items():
                if name == entry.parts[0]:
                    yield alias, tensor


def _tie_flag(config: Mapping[str, Any]) -> bool | None:
    """Said at the top, or in the config of a nested text model."""
    nested = config.get("text_config")
    inside = nested.get("tie_word_embeddings") if isinstance(nested, Mapping) else None
    flag = config.get("tie_word_embeddings")
    return inside if flag is None else flag


def _same(first: Any, second: Any) -> bool:
    """Equal, floats to the rounding of a float32: a scale may be kept in one."""
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=2**-23)
    return first == second
