"""Reading: a text as the ids that a model takes, and each of them as text again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from plait.generation import generate
from plait.generation.prompts import read_prompts
from plait.generation.settings import start_id
from plait.inspection.errors import InspectionError

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint
    from plait.text import Tokenizer


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """One row: ``tokens`` ``(1, n)`` and, for an encoder-decoder, ``source`` ``(1, m)``; ``texts`` and ``source_texts``
    are what each of them spells."""

    tokens: Tensor
    texts: tuple[str, ...]
    source: Tensor | None = None
    source_texts: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What the model takes beside the tokens."""
        return {} if self.source is None else {"source": self.source}

    def __len__(self) -> int:
        return self.tokens.shape[1]

    def seen_by(self, tower: str) -> tuple[str, ...]:
        """The texts of the tokens that a tower reads."""
        return self.source_texts if tower == "encoder" and self.source is not None else self.texts


def read(checkpoint: Checkpoint, text: Any, *, target: Any = None) -> Reading:
    """One text, or ids; see ``trace``. Raises ``InspectionError`` for what is longer than the model's positions, and
    ``GenerationError`` for what is no text."""
    a, tokenizer, rules = checkpoint.architecture, checkpoint.tokenizer, checkpoint.rules
    device = next(checkpoint.model.parameters()).device
    both = a.kind == "encoder-decoder"
    rows, single = read_prompts(
        text, tokenizer, specials=True, vocab_size=a.source_vocab_size if both else a.vocab_size, bos=rules.bos
    )
    if not single:
        raise InspectionError(f"text: {len(rows)} texts; one is looked into at a time.")
    row = rows[0]
    writer = tokenizer if tokenizer is None or tokenizer.target is None else tokenizer.target
    if not both:
        if target is not None:
            raise InspectionError(f"target: this {a.kind} reads one text; write both into it.")
        _check_length("text", row, a.max_length)
        return Reading(tokens=torch.tensor([row], device=device), texts=spelled(row, tokenizer))
    if target is None:
        written: Any = generate(checkpoint, [row])
        behind = [token for token in written[0].tokens if token not in rules.end]
    else:
        behind = read_prompts(target, writer, specials=False, vocab_size=a.vocab_size, bos=rules.bos)[0][0]
    tokens = [start_id(rules, a.vocab_size), *behind]
    _check_length("text", row, a.max_length)
    _check_length("target", tokens, a.max_length)
    return Reading(
        tokens=torch.tensor([tokens], device=device),
        texts=spelled(tokens, writer),
        source=torch.tensor([row], device=device),
        source_texts=spelled(row, tokenizer),
    )


def spelled(ids: list[int], tokenizer: Tokenizer | None) -> tuple[str, ...]:
    """Each id as it is spelt in the middle of a text; where its bytes are part of a character, or it is no text, as the
    vocabulary spells it; without a tokenizer its number."""
    return tuple(spell(id, tokenizer) for id in ids)


def spell(id: int, tokenizer: Tokenizer | None) -> str:
    """One id; see ``spelled``."""
    if tokenizer is None or id >= len(tokenizer):
        return str(id)
    text = tokenizer.decode([id], continues=True)
    return text if text and "\ufffd" not in text else tokenizer.token(id)


def token_at(tokenizer: Tokenizer, ids: Sequence[int], text: str, end: int) -> int:
    """Which of the ids, which ``text`` was read into, spells its last character before ``end``.

    Raises ``InspectionError`` where the ids do not spell the text, so that nothing can be found in it.
    """
    stream, spelt, found = tokenizer.stream(skip_specials=True), "", None
    for place, id in enumerate(ids):
        spelt += stream.push(id)
        if found is None and len(spelt) >= end:
            found = place
    spelt += stream.flush()
    if found is None or spelt.casefold() != text.casefold():
        raise InspectionError(
            f"subject: the vocabulary spells {text!r} as {spelt!r}, so the subject's place in it is not known."
        )
    return found


def _check_length(what: str, ids: list[int], longest: int | None) -> None:
    if longest is not None and len(ids) > longest:
        raise InspectionError(f"{what}: its {len(ids)} tokens exceed the context of {longest}; cut it.")
