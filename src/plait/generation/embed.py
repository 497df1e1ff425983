"""Embed: texts to vectors, by pooling the last hidden states of an encoder or a decoder."""

# b rows, n tokens, d width

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.architecture import Pooling
from plait.checkpoint.notice import notice
from plait.generation.errors import GenerationError
from plait.generation.padding import padded
from plait.generation.prompts import read_prompts
from plait.generation.runner import check_in_memory, check_runner
from plait.model.head import pool

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint
    from plait.engine import EngineRunner
    from plait.model import Transformer

POOLINGS: tuple[Pooling, ...] = ("mean", "cls", "last")


@torch.inference_mode()
def embed(
    checkpoint: Checkpoint,
    texts: Any,
    *,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    batch_size: int = 32,
    runner: EngineRunner | None = None,
) -> Tensor:
    """One vector for each text: ``(n, d_model)`` float32, in the order given. Padding and batch-mates change nothing.

    ``texts``: a list of texts (or of token ids); a single text gives one row, an empty list ``(0, d_model)``.
    ``pooling``: the ``mean`` over real tokens, the first (``cls``) or the ``last``; ``None`` is what a
    sentence-transformers folder says, otherwise ``last`` for a decoder and ``mean`` for everything else. ``runner``:
    ``plait.optimize(checkpoint)``; ``None`` is the checkpoint's model itself.
    ``normalize``: to length 1; ``None`` is what the folder says, otherwise not. A text longer than the folder's limit,
    or than the architecture's, is cut to it (a ``PlaitNotice`` says how many were); a special token at its end stays.
    ``GenerationError`` (a ``ValueError``), before any work, for a pooling, a batch size or a runner that is none, for a
    checkpoint whose weights are not in memory without a runner that has them, and for a text
    that cannot be read: token ids outside the vocabulary, text without a tokenizer, an empty text without a BOS token.
    """
    record = checkpoint.pooling
    kind = checkpoint.architecture.kind
    if pooling is None:
        pooling = record.pooling if record is not None else "last" if kind == "decoder" else "mean"
    if pooling not in POOLINGS:
        raise GenerationError(f"pooling: {pooling!r} is none of {', '.join(POOLINGS)}; choose one of them.")
    if normalize is None:
        normalize = record is not None and record.normalize
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise GenerationError(f"batch_size: {batch_size!r} makes no sense; give a whole number from 1.")
    if runner is None:
        check_in_memory("embed", checkpoint.model, "runner=plait.optimize(checkpoint)")
    else:
        check_runner(runner, checkpoint.architecture)
        if not hasattr(runner, "states"):
            raise GenerationError(
                f"runner: {type(runner).__name__} has no states to pool; give plait.optimize(checkpoint), or none."
            )
    rows = _read(checkpoint, texts, None if record is None else record.max_length)
    device = _device(checkpoint.model) if runner is None else runner.device
    vectors = torch.empty(len(rows), checkpoint.architecture.d_model, device=device)
    by_length = sorted(range(len(rows)), key=lambda i: len(rows[i]), reverse=True)  # rows of a batch hardly padded
    for start in range(0, len(rows), batch_size):
        places = by_length[start : start + batch_size]
        if runner is not None:
            for place, states in zip(places, runner.states([rows[i] for i in places]), strict=True):
                vectors[place] = pool(states.unsqueeze(0), None, pooling)[0].float()
            continue
        tokens, mask = padded([rows[i] for i in places], vectors.device, side="right")
        vectors[places] = pool(_hidden(checkpoint.model, tokens, mask), mask, pooling).float()
    return F.normalize(vectors, dim=-1) if normalize else vectors


def _read(checkpoint: Checkpoint, texts: Any, limit: int | None) -> list[list[int]]:
    tokenizer, architecture = checkpoint.tokenizer, checkpoint.architecture
    rows, _ = read_prompts(
        texts,
        tokenizer,
        specials=True,
        vocab_size=architecture.source_vocab_size if architecture.n_encoder_layers else architecture.vocab_size,
        bos=None if tokenizer is None else tokenizer.bos,
    )
    limits = [n for n in (limit, architecture.max_length) if n is not None]
    specials = frozenset[int]() if tokenizer is None else tokenizer.special_ids
    if not limits:
        return rows
    if long := sum(len(row) > min(limits) for row in rows):
        notice(
            f"texts: {long} of {len(rows)} {'was' if long == 1 else 'were'} cut at the limit of {min(limits)} tokens."
        )
    return [_cut(row, min(limits), specials) for row in rows]


def _cut(row: list[int], limit: int, specials: frozenset[int]) -> list[int]:
    """At most ``limit`` tokens; a special one at the end (BERT's separator, T5's end) stays there."""
    if len(row) <= limit:
        return row
    return [*row[: limit - 1], row[-1]] if row[-1] in specials else row[:limit]


def _hidden(model: Transformer, tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Last hidden states ``(b, n, d)``, after the final norm and before any head: the encoder's where there is one."""
    if model.architecture.kind == "encoder-decoder":
        return model.encode(tokens, mask)
    return model.states(tokens, mask=mask)


def _device(model: Transformer) -> torch.device:
    return next(model.parameters()).device
