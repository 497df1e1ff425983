"""Prompts: a fact's text behind several beginnings, as rows of ids: what is found then holds in more than one context.

row  beginning + prompt with subject + target      keys are taken at the subject's last token
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.checkpoint import Checkpoint
from plait.generation import generate
from plait.generation.padding import padded
from plait.inspection.editing.facts import Fact, tokenizer_of
from plait.inspection.reading import token_at

ESSENCE = "{} is a"  # what the subject is, which a change of one fact about it should leave


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """``tokens`` and ``mask`` ``(b, n)``, padded on the right; ``subjects`` ``(b,)`` where subjects end; ``targets``
    ``(b, n)`` the next token where it is one of the target, else -100."""

    tokens: Tensor
    mask: Tensor
    subjects: Tensor
    targets: Tensor


def beginnings(checkpoint: Checkpoint, *, count: int = 4, length: int = 8, seed: int = 0) -> list[str]:
    """Texts that the model writes by itself, and none at all, first."""
    if not count:
        return [""]
    starts = ["The", "In", "It", "A", "This", "When", "However", "One"]
    prompts = [starts[i % len(starts)] for i in range(count)]
    written: Any = generate(checkpoint, prompts, max_new_tokens=length, temperature=0.8, top_p=0.9, seed=seed)
    return ["", *(f"{prompt}{one.text.rstrip()}. " for prompt, one in zip(prompts, written, strict=True))]


def rows_of(checkpoint: Checkpoint, fact: Fact, before: Sequence[str], *, target: bool = True) -> Rows:
    """The fact behind each beginning, with its target or without."""
    tokenizer = tokenizer_of(checkpoint)
    rows: list[list[int]] = []
    subjects: list[int] = []
    starts: list[int] = []
    for beginning in before:
        text = beginning + fact.text
        ids = [*tokenizer.prefix, *tokenizer.encode(text, specials=False)]
        subjects.append(token_at(tokenizer, ids, text, len(beginning) + fact.ends))
        starts.append(len(ids))
        rows.append([*ids, *answer_ids(checkpoint, fact)] if target else ids)
    device = next(checkpoint.model.parameters()).device
    tokens, mask = padded(rows, device, side="right")
    mask = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    targets = torch.full_like(tokens, -100)
    for row, (ids, start) in enumerate(zip(rows, starts, strict=True)):
        targets[row, start - 1 : len(ids) - 1] = tokens[row, start : len(ids)]
    return Rows(tokens=tokens, mask=mask, subjects=torch.tensor(subjects, device=device), targets=targets)


def together(several: Sequence[Rows]) -> Rows:
    """All rows in one batch, padded to the longest."""
    n = max(rows.tokens.shape[1] for rows in several)

    def join(name: str, fill: int) -> Tensor:
        return torch.cat([F.pad(getattr(rows, name), (0, n - rows.tokens.shape[1]), value=fill) for rows in several])

    return Rows(
        tokens=join("tokens", 0),  # padding is masked, so any token will do
        mask=join("mask", 0),
        subjects=torch.cat([rows.subjects for rows in several]),
        targets=join("targets", -100),
    )


def answer_ids(checkpoint: Checkpoint, fact: Fact) -> list[int]:
    """The target's ids as they follow the prompt."""
    return following_ids(checkpoint, fact.text, fact.answer)


def following_ids(checkpoint: Checkpoint, text: str, more: str) -> list[int]:
    """The ids that ``more`` adds to those of ``text``: of the two as one text, where its cut leaves the first alone."""
    tokenizer = tokenizer_of(checkpoint)
    alone, both = tokenizer.encode(text, specials=False), tokenizer.encode(text + more, specials=False)
    return both[len(alone) :] if both[: len(alone)] == alone else tokenizer.encode(more, specials=False)
