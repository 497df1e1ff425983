"""Classify: texts, or pairs of them, to the probability of each label."""

# b rows, n tokens, l labels

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from plait.architecture import Classification
from plait.generation.errors import GenerationError
from plait.generation.padding import padded
from plait.generation.prompts import read_prompts
from plait.generation.row import at_least_float32
from plait.generation.runner import check_in_memory
from plait.generation.sampling import check_numbers

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint

Row = tuple[list[int], list[int]]  # ids, and the type of each
Labelled = dict[str, float]


@torch.inference_mode()
def classify(checkpoint: Checkpoint, texts: Any, *, batch_size: int = 32) -> list[Labelled] | list[list[Labelled]]:
    """For each text the probability of every label, ``{label: probability}``, in the order of the head's labels.

    ``texts``: a list of texts, of pairs ``(first, second)`` for models that compare two (a reranker's are a query and a
    passage), or of token ids; a single one gives a list of one. A head that answers for every token gives a list for
    each text, one ``{label: probability}`` for each of its tokens, the special ones included. Labels exclude each other
    (softmax), unless there is but one or ``problem_type`` is ``multi_label_classification``: then each has a
    probability of its own (sigmoid). Padding and batch-mates change nothing. ``GenerationError`` (a ``ValueError``),
    before any work, for a model that classifies nothing and for what cannot be read or is longer than the context.
    """
    labels, alone = _labels(checkpoint), _alone(checkpoint)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise GenerationError(f"batch_size: {batch_size!r} makes no sense; give a whole number from 1.")
    check_in_memory("classify", checkpoint.model, "lazy=False")
    rows = read_rows(checkpoint, texts)
    found: dict[int, Any] = {}
    by_length = sorted(range(len(rows)), key=lambda i: len(rows[i][0]), reverse=True)  # rows of a batch hardly padded
    for start in range(0, len(rows), batch_size):
        places = by_length[start : start + batch_size]
        for place, logits in zip(places, _logits(checkpoint, [rows[i] for i in places]), strict=True):
            check_numbers(logits)
            values = at_least_float32(logits)
            shares = (values.sigmoid() if alone else values.softmax(-1)).tolist()
            each = [dict(zip(labels, share, strict=True)) for share in (shares if logits.ndim == 2 else [shares])]
            found[place] = each if logits.ndim == 2 else each[0]
    return [found[i] for i in range(len(rows))]


def read_rows(checkpoint: Checkpoint, texts: Any) -> list[Row]:
    """What the model reads for each text or pair; ``GenerationError`` where that cannot be."""
    a, tokenizer = checkpoint.architecture, checkpoint.tokenizer
    bos = None if tokenizer is None else tokenizer.bos

    def read(prompt: Any) -> list[Row]:
        ids, _ = read_prompts(prompt, tokenizer, specials=True, vocab_size=a.vocab_size, bos=bos)
        return [(row, [0] * len(row)) for row in ids]

    def pair(first: str, second: str) -> Row:
        if tokenizer is None:
            raise GenerationError("texts: the checkpoint has no tokenizer to read text with; give token ids.")
        return tokenizer.encode_pair(first, second)

    if _is_pair(texts):
        rows = [pair(*texts)]
    elif isinstance(texts, list) and any(map(_is_pair, texts)):
        rows = [pair(*text) if _is_pair(text) else read([text])[0] for text in texts]
    else:
        rows = read(texts)
    for index, (ids, _) in enumerate(rows):
        if a.max_length is not None and len(ids) > a.max_length:
            raise GenerationError(f"text {index}: its {len(ids)} tokens exceed the context of {a.max_length}; cut it.")
    return rows


def _is_pair(text: Any) -> TypeGuard[tuple[str, str]]:
    return isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text)


def _labels(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The labels' names, or their numbers where the files have none or as many names as do not fit."""
    a = checkpoint.architecture
    if not isinstance(a.head, Classification):
        raise GenerationError(f"classify: this {a.kind} has no head that classifies; give a model that has one.")
    classes: Any = (checkpoint.layout.config or {}).get("architectures") or [""]
    if str(classes[0]).endswith("ForQuestionAnswering"):
        raise GenerationError("classify: this head marks where an answer starts and ends in a text, and has no labels.")
    names = checkpoint.labels or ()
    fit = len(set(names)) == len(names) == a.head.labels
    return names if fit else tuple(f"LABEL_{i}" for i in range(a.head.labels))


def _alone(checkpoint: Checkpoint) -> bool:
    """Whether each label has a probability of its own."""
    problem = (checkpoint.layout.config or {}).get("problem_type")
    head = checkpoint.architecture.head
    one = isinstance(head, Classification) and head.labels == 1
    if problem == "regression" and not one:
        raise GenerationError("problem_type: this head was trained to give numbers (regression), not probabilities.")
    return one or problem == "multi_label_classification"


def _logits(checkpoint: Checkpoint, rows: list[Row]) -> list[Tensor]:
    """``(l,)`` for each row, or ``(n, l)`` where every token is classified."""
    a, model = checkpoint.architecture, checkpoint.model
    device = next(model.parameters()).device
    tokens, mask = padded([ids for ids, _ in rows], device, side="right")
    types = None
    if a.token_types and any(any(row) for _, row in rows):
        types, _ = padded([row for _, row in rows], device, side="right")
    logits = model(tokens, mask=mask, token_types=types)
    return [one if logits.ndim == 2 else one[: len(ids)] for one, (ids, _) in zip(logits, rows, strict=True)]
