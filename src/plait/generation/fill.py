"""Fill: what a masked model would write in place of each mask of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from plait.generation.errors import GenerationError, in_words
from plait.generation.prompts import read_prompts
from plait.generation.row import at_least_float32
from plait.generation.runner import check_in_memory
from plait.generation.sampling import check_numbers

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One token for a mask: its id, its text, and the natural logarithm of its probability there."""

    token: int
    text: str
    logprob: float


@torch.inference_mode()
def fill(checkpoint: Checkpoint, text: Any, *, k: int = 5) -> list[list[Candidate]] | list[list[list[Candidate]]]:
    """The ``k`` likeliest tokens for each mask of a text, likeliest first; of a list of texts, a list for each.

    A mask is the tokenizer's mask token, ``[MASK]`` or ``<mask>`` say, in the text or among token ids. Each mask is
    filled as if the others stayed. ``GenerationError`` (a ``ValueError``) where the model or the text has no mask.
    """
    a, tokenizer = checkpoint.architecture, checkpoint.tokenizer
    if a.head != "masked":
        raise GenerationError(f"fill: this {in_words(a)} fills no masks; give a masked language model.")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise GenerationError(f"k: {k!r} makes no sense; give a whole number from 1.")
    mask = None if tokenizer is None else tokenizer.named.get("mask")
    if tokenizer is None or mask is None:
        raise GenerationError("fill: the checkpoint's tokenizer has no mask token; give one that has.")
    check_in_memory("fill", checkpoint.model, "lazy=False")
    rows, single = read_prompts(text, tokenizer, specials=True, vocab_size=a.vocab_size, bos=tokenizer.bos)
    for index, row in enumerate(rows):
        where = "text" if single else f"text {index}"
        if mask not in row:
            raise GenerationError(
                f"{where}: it has no mask to fill; write {tokenizer.token(mask)} where a word is wanted."
            )
        if a.max_length is not None and len(row) > a.max_length:
            raise GenerationError(f"{where}: its {len(row)} tokens exceed the context of {a.max_length}; cut it.")
    device = next(checkpoint.model.parameters()).device
    filled: list[list[list[Candidate]]] = []
    for row in rows:
        tokens = torch.tensor([row], device=device)
        logits = at_least_float32(checkpoint.model(tokens)[0][tokens[0] == mask])  # masks vocab
        known = logits.log_softmax(-1)[:, : len(tokenizer)]  # a table may be padded, or have fewer
        check_numbers(known[:, 0])
        top = known.topk(min(k, known.shape[1]))
        filled.append(
            [
                [
                    Candidate(token=token, text=tokenizer.decode([token]), logprob=logprob)
                    for token, logprob in zip(*candidates, strict=True)
                ]
                for candidates in zip(top.indices.tolist(), top.values.tolist(), strict=True)
            ]
        )
    return filled[0] if single else filled
