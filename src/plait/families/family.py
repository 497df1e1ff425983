"""A family of checkpoints as data: what its configs say, read as an architecture and written from one.

``architecture`` reads a config, ``config`` writes one. What the family says of weights is in ``weights.py``: a class
that classifies has a head of its own, so here is chosen whose weights they are.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal

from plait.architecture import Architecture, ArchitectureError, Classification
from plait.families.binding import Binding, Entry, Rule, repeated
from plait.families.errors import FamilyError
from plait.families.heads import (
    HEAD_FIELDS,
    NESTED,
    TIE_KEY,
    ClassHead,
    classifying_ending,
    has_vocabulary_head,
    is_tied,
    label_names,
    tie_flag,
)
from plait.families.knobs import KNOWN, refuse
from plait.families.layout import Equal, Layout, Spelling
from plait.families.settings import Reading, Setting, merged
from plait.families.weights import Weights

if TYPE_CHECKING:
    from torch import Tensor

# What one config keeps of another, whatever its family
IDS = re.compile(r"(\w+_token_id|dtype|torch_dtype|transformers_version|id2label|label2id|problem_type)")
DEEP = 1000  # layers that no model has yet


@dataclass(frozen=True, kw_only=True, eq=False)
class Family(Weights):
    """One dialect of checkpoints; the fields about its weights are those of ``Weights``.

    ``settings``: a field of Architecture -> the rule that says it, or the value it always has here.
    ``heads``: the ending of a class that classifies (``"ForTokenClassification"``) -> its head.
    ``tied``: the class's default for ``tie_word_embeddings``; ``None`` where it is not about the head alone.
    ``synonyms``: other names of settings. ``ignored``: settings that the class does not use.
    ``extra``: settings to write that no field says.
    ``limits``: a field, or a member of one, that no setting says in full -> whether the class has it, and what it has.
    ``ids``: what the class assumes where neither JSON file has the key (``"eos_token_id"``).
    ``starts_with_pad``: a decoder that no file tells its first token begins with the pad id.
    ``tokenizer``: the tokenizer's class, for folders that do not name it.
    """

    model_types: tuple[str, ...]
    classes: tuple[str, str]  # with a vocabulary head, and without
    settings: Mapping[str, Any]
    head: Literal["language", "masked"] | ClassHead = "language"
    heads: Mapping[str, ClassHead] = field(default_factory=dict[str, ClassHead])
    tied: bool | None = False
    synonyms: Mapping[str, str] = field(default_factory=dict[str, str])
    ignored: frozenset[str] = frozenset()
    extra: Callable[[Architecture], dict[str, Any]] = lambda _: {}
    limits: Mapping[str, tuple[Callable[[Architecture], bool], str]] = field(default_factory=dict[str, Any])
    ids: Mapping[str, int | list[int]] = field(default_factory=dict[str, int | list[int]])
    starts_with_pad: bool = False
    tokenizer: str | None = None

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

    # Heads: a class that classifies is a family of its own, this one but for its head

    @cached_property
    def _classifying(self) -> dict[str, Family]:
        """The ending of a class's name -> the family with that head."""
        bare = self.classes[1]
        return {
            ending: dataclasses.replace(
                self,
                classes=(bare.removesuffix("Model") + ending, bare),
                settings=head.settings(self.settings),
                weights={n: rule for n, rule in self.weights.items() if not n.startswith("head.")} | dict(head.weights),
                head=head,
                heads={},
                tied=False,
                aliases={n: meant for n, meant in self.aliases.items() if not meant.startswith("head.")},
                leftovers=(*self.leftovers, *map(re.escape, self.head_tensors)),  # tuned from a model with that head
            )
            for ending, head in self.heads.items()
        }

    def _ending(self, architecture: Architecture, likely: str | None) -> str | None:
        """Which class that classifies has this architecture's head: the ``likely`` one, if it fits, or the first."""
        if not isinstance(architecture.head, Classification) or isinstance(self.head, ClassHead):
            return None
        fitting = [ending for ending, head in self.heads.items() if head.fits(architecture)]
        if not fitting:
            raise FamilyError(
                f"{self.name} cannot say head {architecture.head} with head_transform {architecture.head_transform!r}; "
                f"it has those of {' and '.join(self._class_names)}."
            )
        return likely if likely in fitting else fitting[0]

    @property
    def _class_names(self) -> tuple[str, ...]:
        return (*self.classes, *(family.classes[0] for family in self._classifying.values()))

    # Settings

    @cached_property
    def rules(self) -> dict[str, Setting]:
        """The fields that some setting says."""
        return {field: rule for field, rule in self.settings.items() if isinstance(rule, Setting)}

    @cached_property
    def keys(self) -> frozenset[str]:
        """Every setting that is read."""
        own = frozenset(key for rule in self.rules.values() for key in rule.keys)
        return own.union(*(family.keys for family in self._classifying.values()))

    def architecture(
        self, config: Mapping[str, Any], names: Collection[str] | None = None, equal: Equal | None = None
    ) -> Architecture:
        """The architecture that a config says together with the tensors beside it.

        ``names`` are the stored tensors, ``equal(a, b)`` compares two of them; without any the config is believed.
        Raises ``FamilyError`` over what plait does not have, and where config and tensors contradict each other.
        """
        ending = classifying_ending(config, self.heads)
        if ending is not None:
            return self._classifying[ending].architecture(config, names, equal)
        config = self._usual(config)
        causal = self.settings.get("n_decoder_layers", 0) != 0  # an encoder sees all, whatever is_causal says
        refuse(self.name, config, {*self.keys, *self.ignored, NESTED, *(() if causal else ("is_causal",))})
        spelling = self._spelling(names) if names else None
        has_head = self._has_head(config, spelling)
        rules = {name: rule for name, rule in self.settings.items() if has_head or name not in HEAD_FIELDS}
        if not isinstance(self.head, ClassHead):
            rules |= {"head": self.head, "tied": self._is_tied(config, spelling, equal)} if has_head else {"head": None}
        try:
            architecture = Architecture(**Reading(config, rules, spelling, equal))
        except ArchitectureError as error:
            raise FamilyError(f"this {self.name} config describes no Transformer: {error}") from error
        width = config.get("head_dim")  # where no rule reads it, the class may turn so many dimensions of other heads
        if width and not {"head_dim"} & (self.keys | self.ignored) and width != architecture.d_head:
            raise FamilyError(
                f"head_dim: {width} is not the width of {self.name}'s heads, which is d_model / n_heads, "
                f"{architecture.d_head}; leave it out."
            )
        if spelling and equal:
            n_layers = sum(len(set(tower.schedule)) for tower in architecture.towers)
            if n_layers > max(len(spelling.names), DEEP):  # said before anything is worked out for each
                raise FamilyError(
                    f"this {self.name} config says {n_layers} layers, and the file has {len(spelling.names)} tensors; "
                    "one of the two is wrong."
                )
            self._compare_repeated(architecture, spelling, equal)
        return architecture

    def _usual(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {self.synonyms.get(key, key): value for key, value in config.items()}

    def unread(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """The settings that nothing reads and that are not known to be without effect."""
        config = self._usual(config)
        inside = [name for rule in self.rules.values() for name in rule.unread(config)]
        return (*sorted(config.keys() - self.keys - self.ignored - KNOWN - {NESTED}), *sorted(set(inside)))

    def _has_head(self, config: Mapping[str, Any], spelling: Spelling | None) -> bool:
        """From the class named in the config; where none is, from the tensors."""
        if isinstance(self.head, ClassHead):
            return True
        if self.classes[0] == self.classes[1]:  # a bare encoder
            return False
        told = has_vocabulary_head(config, "n_encoder_layers" in self.settings, self._class_names)
        if told is not None:
            # sentence-transformers leaves the config of the model with a head beside a file of the bare encoder
            bare = self.head == "masked" and spelling is not None and not spelling.prefix
            return told and not (bare and not self._may_have_head(config, spelling))
        return self._may_have_head(config, spelling)

    def _may_have_head(self, config: Mapping[str, Any], spelling: Spelling | None) -> bool:
        """Whether a head is stored, or may be the table alone."""
        if spelling is None or spelling.find(*self.head_tensors):
            return True
        flag = tie_flag(config)
        return "head_transform" not in self.settings and bool(spelling.prefix or (self.tied if flag is None else flag))

    def _is_tied(self, config: Mapping[str, Any], spelling: Spelling | None, equal: Equal | None) -> bool:
        heads, tables = self.places["head.output.weight"], self.places["embedding.tokens.weight"]
        flag = None if TIE_KEY in self.keys else tie_flag(config)  # a rule reads it: it is about more than the head
        return is_tied(flag, self.tied is not False, spelling, heads, tables, equal)

    def config(self, architecture: Architecture, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The config that says exactly this architecture; ``base``, where there is one, changed as little as can be.

        Raises ``FamilyError`` naming the field that this family cannot say.
        """
        base = base or {}
        self._refuse_beyond_limits(architecture)
        ending = self._ending(architecture, classifying_ending(base, self.heads))
        if ending is not None:
            family = self._classifying[ending]
            same = classifying_ending(base, self.heads) == ending
            return family.config(architecture, base if same else {**base, "architectures": [family.classes[0]]})
        mine = base.get("model_type") in self.model_types
        ties = architecture.head in ("language", "masked")
        for candidate in (dict(base), *([{**base, TIE_KEY: architecture.tied}] if ties else [])) if mine else ():
            if self._says(candidate, architecture):
                return candidate
        stale = {*self.keys, *self.synonyms}
        kept = {k: v for k, v in base.items() if (k not in stale if mine else IDS.fullmatch(k))}
        fields = {f.name: getattr(architecture, f.name) for f in dataclasses.fields(architecture)}
        has_head = architecture.head is not None
        rules = {name: rule for name, rule in self.rules.items() if has_head or name not in HEAD_FIELDS}
        written = {
            **self.extra(architecture),
            **kept,
            **merged({name: rule.save(fields[name], fields) for name, rule in rules.items()}, self.name),
            **({TIE_KEY: architecture.tied} if ties else {}),
            **label_names(architecture.head, kept),
            "architectures": [self.classes[0 if has_head else 1]],
            "model_type": self.model_types[0],
        }
        self._refuse_what_is_lost(self._read_back(written, architecture), architecture)
        return written

    def _refuse_beyond_limits(self, architecture: Architecture) -> None:
        """Raise over a field that the class does not have so, though its config would not show it."""
        for tower in ("n_encoder_layers", "n_decoder_layers"):
            if tower in self.rules and not getattr(architecture, tower):
                raise FamilyError(f"{self.title} cannot say {tower} 0: it has that tower.")
        for path, (holds, right) in self.limits.items():
            if not holds(architecture):
                value = reduce(lambda value, name: getattr(value, name, None), path.split("."), architecture)
                raise FamilyError(f"{self.title} cannot say {path} {value!r}; there it is {right}.")

    def _refuse_what_is_lost(self, read: Architecture, architecture: Architecture) -> None:
        """Raise over the fields in which ``read``, what a written config says, is not ``architecture``."""
        apart = {
            name: f"{name} {ours!r} (it would read {theirs!r})"
            for name, (theirs, ours) in read.difference(architecture).items()
            if not _same(theirs, ours) and not (name == "max_length" and ours is None)
        }
        if apart:
            raise FamilyError(f"{self.title} cannot say {', '.join(apart.values())}.")

    def _says(self, config: Mapping[str, Any], architecture: Architecture) -> bool:
        """Whether a config reads to this architecture, here and in the library that reads no tensors first."""
        try:
            read = self._read_back(config, architecture)
        except FamilyError:
            return False
        flag = tie_flag(config)
        ties = architecture.head in ("language", "masked") and self.tied is not None
        if ties and architecture.tied != (self.tied if flag is None else flag):
            return False
        return all(_same(*pair) for pair in read.difference(architecture).values())

    def _read_back(self, config: Mapping[str, Any], architecture: Architecture) -> Architecture:
        names = {stored for entry, _ in self._entries(architecture).values() for stored in entry.stored}
        if architecture.head is None:
            names = {name.removeprefix(self.prefix) for name in names}
        return self.architecture(config, names, lambda first, second: False)

    # Weights, of the class whose head it is

    @cached_property
    def _unread_heads(self) -> frozenset[str]:
        """As in ``Weights``, of all the heads there are."""
        return super()._unread_heads.union(*(family._unread_heads for family in self._classifying.values()))

    def usual(self, architecture: Architecture, layout: Layout | None = None) -> dict[str, tuple[Entry, int]]:
        """As in ``Weights``."""
        ending = self._ending(architecture, layout.head if layout else None)
        return super().usual(architecture) if ending is None else self._classifying[ending].usual(architecture)

    def bind(self, architecture: Architecture, names: Collection[str], equal: Equal | None = None) -> Binding:
        """As in ``Weights``."""
        ending = self._ending(architecture, self._stored_ending(architecture, self._spelling(names)))
        if ending is None:
            return super().bind(architecture, names, equal)
        binding = self._classifying[ending].bind(architecture, names, equal)
        return dataclasses.replace(binding, layout=dataclasses.replace(binding.layout, head=ending))

    def _stored_ending(self, architecture: Architecture, spelling: Spelling) -> str | None:
        """Of classes that differ only in their tensors' names (tokens, spans): the one whose tensors are there."""
        return next(
            (
                ending
                for ending, family in self._classifying.items()
                if self.heads[ending].fits(architecture) and spelling.find(*family.places["head.output.weight"])
            ),
            None,
        )

    def export(
        self, architecture: Architecture, get: Callable[[str], Tensor], layout: Layout | None = None
    ) -> Iterator[tuple[str, Tensor]]:
        """As in ``Weights``; without a layout, as a new file has them."""
        ending = self._ending(architecture, layout.head if layout else None)
        if ending is not None:
            yield from self._classifying[ending].export(architecture, get, layout)
            return
        if layout is None:
            layout = Layout(self.prefix if architecture.head else "", duplicates=self._twice(architecture))
        yield from super().export(architecture, get, layout)

    def _twice(self, architecture: Architecture) -> dict[str, str]:
        """What a new file repeats: untied, a class that ties by default looks for every tensor by its own name."""
        if architecture.tied and TIE_KEY in self.keys and not architecture.shares_embedding:
            return {self.places["head.output.weight"][0]: "embedding.tokens.weight"}
        if architecture.head is None or architecture.tied or self.tied is False:
            return {}
        table = repeated(self.aliases, self._entries(architecture))
        return {alias: name for name, places in table.items() for alias in places[1:]}


def _same(first: Any, second: Any) -> bool:
    """Equal, floats to the rounding of a float32: a scale may be kept in one."""
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=2**-23)
    return first == second
