"""Foreign dialects of checkpoints, as data: each reads and writes by one mechanism, ``family.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.families.bart import BART, MARIAN
from plait.families.bert import BERT, ROBERTA
from plait.families.binding import Binding
from plait.families.errors import FamilyError
from plait.families.family import Family
from plait.families.gemma import GEMMA, GEMMA2, GEMMA3
from plait.families.gpt2 import GPT2
from plait.families.gpt_neox import GPT_NEOX
from plait.families.knobs import missing_part
from plait.families.layout import Layout
from plait.families.llama import LLAMA, MISTRAL
from plait.families.qwen import QWEN2, QWEN3
from plait.families.t5 import T5
from plait.words import nearest

FAMILIES: tuple[Family, ...] = (
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    GEMMA,
    GEMMA2,
    GEMMA3,
    GPT2,
    GPT_NEOX,
    BERT,
    ROBERTA,
    T5,
    BART,
    MARIAN,
)


def family_for(config: Mapping[str, Any]) -> Family:
    """The family of a config, by its ``model_type``; ``FamilyError`` says what is missing, or the nearest name."""
    kind = config.get("model_type")
    for family in FAMILIES:
        if kind in family.model_types:
            return family
    known = [name for family in FAMILIES for name in family.model_types]
    if kind is None:
        raise FamilyError(f"model_type: the config does not say it; plait reads {', '.join(known)}.")
    if part := missing_part(config):
        raise FamilyError(f"model_type: {kind!r} asks for {part}, which plait does not have.")
    if config.get("auto_map"):
        raise FamilyError(f"model_type: {kind!r} brings code of its own (auto_map), which plait never runs.")
    near = nearest(kind, known)
    hint = f"did you mean {near!r}?" if near else f"it reads {', '.join(known)}."
    raise FamilyError(f"model_type: plait has no family {kind!r}; {hint}")


__all__ = ["FAMILIES", "Binding", "Family", "FamilyError", "Layout", "family_for"]
