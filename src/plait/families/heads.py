"""Which head a file has, and whether it shares the table of tokens: config and tensors decide together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from plait.families.errors import FamilyError
from plait.families.layout import Equal, Spelling

# Fields of a vocabulary head, without meaning where there is none
HEAD_FIELDS = frozenset({"head_transform", "logit_bias", "logit_scale", "logit_softcap"})
TIE_KEY, NESTED = "tie_word_embeddings", "text_config"

# Class names, by the towers there are: (a decoder alone, any encoder)
WITH_HEAD = (
    r"\w*(ForCausalLM|LMHeadModel)",
    r"\w*(ForMaskedLM|LMHeadModel|ForPreTraining|ForConditionalGeneration|MTModel)",
)
BARE = r"\w*(?<!Encoder)(?<!DoubleHeads)Model"


def head_by_class(config: Mapping[str, Any], encodes: bool, classes: Sequence[str]) -> bool | None:
    """Whether the class named in a config has a vocabulary head; ``None`` where no class is named."""
    for name in config.get("architectures") or ():
        if re.fullmatch(WITH_HEAD[encodes], name):
            return True
        if re.fullmatch(BARE, name):
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
