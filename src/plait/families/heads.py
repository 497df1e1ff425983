"""Which head a file has, over the vocabulary or over classes, and whether it shares the table of tokens: config and
tensors decide together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.architecture import Activation, Architecture, Classification, Pooling
from plait.families.errors import FamilyError
from plait.families.layout import Equal, Spelling
from plait.families.operations import Fields
from plait.families.settings import Reading, Setting

if TYPE_CHECKING:
    from plait.families.binding import Rule

# Fields of a vocabulary head, without meaning where there is none
HEAD_FIELDS = frozenset({"head_transform", "head_bias", "logit_bias", "logit_scale", "logit_softcap"})
TIE_KEY, NESTED = "tie_word_embeddings", "text_config"

# Class names, by the towers there are: (a decoder alone, any encoder)
WITH_HEAD = (
    r"\w*(ForCausalLM|LMHeadModel)",
    r"\w*(ForMaskedLM|LMHeadModel|ForPreTraining|ForConditionalGeneration|MTModel)",
)
BARE = r"\w*(?<!Encoder)(?<!DoubleHeads)Model"


@dataclass(frozen=True, kw_only=True)
class ClassHead:
    """The head of a class that classifies: ``output(norm(transform(dense(pooled))))``, the inner three where it has
    them.

    ``weights``: ``head.*`` -> stored names, in full. ``pooling``, ``transform``: as in ``Architecture``, or the rule
    that says them. ``labels``: how many there always are; ``None`` where the config names them.
    """

    weights: Mapping[str, Rule]
    pooling: Pooling | Setting | None = "cls"
    transform: Activation | Setting | None = None
    norm: bool = False
    labels: int | None = None

    def settings(self, usual: Mapping[str, Any]) -> dict[str, Any]:
        """A family's ``usual`` rules, with this head instead of the one over its vocabulary."""
        inner = {"head_bias": usual.get("head_bias", True), "head_transform": self.transform} if self.transform else {}
        return {name: rule for name, rule in usual.items() if name not in HEAD_FIELDS} | inner | {"head": self._rule()}

    def _rule(self) -> Setting:
        pooling = self.pooling

        def load(reading: Reading) -> Classification:
            from_where = pooling.load(reading) if isinstance(pooling, Setting) else pooling
            labels = self.labels or count_labels(reading.config)
            return Classification(labels=labels, pooling=from_where, norm=self.norm)

        def save(head: Any, fields: Fields) -> dict[str, Any]:
            return pooling.save(head.pooling, fields) if isinstance(pooling, Setting) else {}

        return Setting(pooling.keys if isinstance(pooling, Setting) else (), load, save)

    def fits(self, architecture: Architecture) -> bool:
        """Whether it can be this architecture's head, as far as that can be seen without a config."""
        head, transform = architecture.head, architecture.head_transform
        return (
            isinstance(head, Classification)
            and head.norm == self.norm
            and self.labels in (None, head.labels)
            and _allows(self.pooling, head.pooling)
            and _allows(self.transform, transform)
        )


def _allows(ours: str | Setting | None, theirs: str | None) -> bool:
    """A rule may say any word, but not that there is none."""
    return theirs is not None if isinstance(ours, Setting) else ours == theirs


# The commonest: one answer a token from a single projection, and of a text from its first token
TOKENS = ClassHead(pooling=None, weights={"head.output": "classifier"})
SPANS = ClassHead(pooling=None, labels=2, weights={"head.output": "qa_outputs"})  # where an answer starts, and ends
TEXT = ClassHead(transform="tanh", weights={"head.dense": "classifier.dense", "head.output": "classifier.out_proj"})


def pooled(dense: str) -> ClassHead:
    """The head behind a pooler, which lies with the model."""
    return ClassHead(transform="tanh", weights={"head.dense": dense, "head.output": "classifier"})


def count_labels(config: Mapping[str, Any]) -> int:
    """How many classes a config names; two where it is silent."""
    names = config.get("id2label")
    if names and not isinstance(names, Mapping | list):
        raise FamilyError(f"id2label: {names!r} is no table of the classes' names; give one name for each number.")
    for key in ("num_labels", "_num_labels"):
        number = config.get(key)
        if number and not names:
            if isinstance(number, bool) or not isinstance(number, int):
                raise FamilyError(f"{key}: {number!r} is no number of classes; give a whole number.")
            return number
    return len(names) if names else 2


def label_names(head: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """The classes' names for a new config: those it has, where they are as many as the head's."""
    if not isinstance(head, Classification) or ("id2label" in config and count_labels(config) == head.labels):
        return {}
    names = {str(i): f"LABEL_{i}" for i in range(head.labels)}
    return {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}


def class_names(config: Mapping[str, Any]) -> list[str]:
    """The classes that a config names; ``FamilyError`` where they are no names."""
    told: Any = config.get("architectures") or []
    if not isinstance(told, list) or not all(isinstance(name, str) for name in told):
        raise FamilyError(f"architectures: {told!r} is no list of names of classes.")
    return told


def classifying_ending(config: Mapping[str, Any], heads: Mapping[str, ClassHead]) -> str | None:
    """Which of the ``heads``, by the end of a class's name, the class named in a config has."""
    first = next(iter(class_names(config)), "")
    return next((ending for ending in heads if first.endswith(ending)), None)


def has_vocabulary_head(config: Mapping[str, Any], encodes: bool, classes: Sequence[str]) -> bool | None:
    """Whether the class named in a config has a vocabulary head; ``None`` where no class is named."""
    for name in class_names(config):
        if re.fullmatch(WITH_HEAD[encodes], name):
            return True
        if re.fullmatch(BARE, name) or name in classes[1:]:
            return False
        raise FamilyError(f"architectures: plait has no head for {name}; it has those of {' and '.join(classes)}.")
    return None


def tie_flag(config: Mapping[str, Any]) -> bool | None:
    """Said at the top, or in the config of a nested text model; ``None`` where it is not said."""
    nested = config.get(NESTED)
    inside = nested.get(TIE_KEY) if isinstance(nested, Mapping) else None
    flag = config.get(TIE_KEY)
    return inside if flag is None else flag


def is_tied(
    flag: bool | None,
    usual: bool,
    spelling: Spelling | None,
    heads: Sequence[str],
    tables: Sequence[str],
    equal: Equal | None,
) -> bool:
    """A stored head that differs from the table wins over every flag; flag and file that contradict are an error.

    ``usual`` is what the class takes without a flag; ``heads`` and ``tables`` are where the two may be stored.
    """
    believed = usual if flag is None else flag
    if spelling is None:
        return believed
    head, table = spelling.find(*heads), spelling.find(*tables)
    if head is None or table is None:
        if flag is False:
            lost = heads[0] if head is None else tables[0]
            raise FamilyError(f"{TIE_KEY}: it is false, but the file has no {lost}; one of them is wrong.")
        return True
    return believed and equal is not None and equal(head, table)
