"""Contrastive search: of the few likeliest tokens one that is unlike all that stands before it, as the model sees it.

    x1 x2 x3 ─┬─ v1    The k likeliest candidates v are read side by side. The last hidden state that each leaves,
              ├─ v2    which the head would read next, is compared with those of all tokens before it.
              └─ v3

Su et al. 2022, "A Contrastive Framework for Neural Text Generation", equation 5:
the v with the largest (1 - alpha) p(v | x) - alpha max_j cos(h_v, h_j).
"""

# b rows still being written, k candidates of each, n tokens, d width

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plait.checkpoint.notice import notice
from plait.generation.decode import echoed, prefill
from plait.generation.errors import GenerationError
from plait.generation.records import Piece
from plait.generation.row import Request, Row, at_least_float32, score
from plait.generation.runner import ModelRunner, Runner
from plait.generation.sampling import check_numbers
from plait.model.sites import watching

if TYPE_CHECKING:
    from plait.checkpoint import DecodeRules
    from plait.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """How a contrastive search chooses.

    Args:
        penalty_alpha: how much likeness to the text counts beside the model's confidence, above 0 and up to 1.
        top_k: how many of the likeliest tokens are candidates.

    Raises ``GenerationError`` where a value makes no sense.
    """

    penalty_alpha: float
    top_k: int

    def __post_init__(self) -> None:
        alpha, k = self.penalty_alpha, self.top_k
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= 1:
            raise GenerationError(f"penalty_alpha: {alpha!r} makes no sense; give a number from 0 to 1 (0 is off).")
        if isinstance(k, bool) or not isinstance(k, int) or k < 2:
            raise GenerationError(
                f"top_k: {k!r} leaves contrastive search (penalty_alpha) no candidates to compare; give a whole number "
                "from 2."
            )


def settle_contrast(rules: DecodeRules, wishes: dict[str, Any], *, searched: bool = False) -> Contrast | None:
    """The caller's ``wishes`` for a contrastive search, which are taken out, over the checkpoint's rules; ``None``
    where it is none. The rules' own is one where tokens are neither drawn nor ``searched`` for with beams."""
    given = wishes.pop("penalty_alpha", None)
    temperature = wishes.get("temperature")
    if given is None:
        drawn = rules.sample if temperature is None else temperature > 0
        if rules.penalty_alpha <= 0 or drawn or searched:
            return None
        if wishes.get("top_k") is None and rules.top_k < 2:
            notice("rules: the checkpoint's penalty_alpha says nothing without a top_k from 2; the likeliest is taken.")
            return None
    elif given == 0:
        return None
    top_k = wishes.pop("top_k", None)
    contrast = Contrast(
        penalty_alpha=rules.penalty_alpha if given is None else given, top_k=rules.top_k if top_k is None else top_k
    )
    if searched:
        raise GenerationError("penalty_alpha: it chooses for one beam; give beams=1, or penalty_alpha=0.")
    if temperature is not None and temperature > 0:
        raise GenerationError(
            "penalty_alpha: the best of the candidates is taken, none is drawn; give temperature=0, or penalty_alpha=0."
        )
    wishes["temperature"] = 0.0
    return contrast


def shows_states(runner: Runner) -> ModelRunner:
    """The runner; ``GenerationError`` for one that has no hidden states to show."""
    if not isinstance(runner, ModelRunner):
        raise GenerationError(
            f"penalty_alpha: contrastive search reads hidden states, and {type(runner).__name__} gives logits alone; "
            "leave runner out (--plain on the command line), or give penalty_alpha=0."
        )
    return runner


@torch.inference_mode()
def contrastive_search(
    runner: ModelRunner,
    requests: Sequence[Request],
    contrast: Contrast,
    *,
    tokenizer: Tokenizer | None = None,
    preallocate: bool = True,
    chunk: int | None = None,
) -> Iterator[tuple[int, Piece]]:
    """Write every request to its end: what ``decode`` yields, with its arguments. The cache has k rows for each."""
    if not requests:
        return
    rows = list(enumerate(Row(request, tokenizer) for request in requests))
    longest, n_others = max(len(r.tokens) for r in requests), max(r.alternatives for r in requests)
    k = min(contrast.top_k, runner.architecture.vocab_size)
    cache = runner.cache(
        len(rows),
        capacity=longest + max(r.limit for r in requests) if preallocate else None,
        total_lengths=[len(r.tokens) + r.limit for r in requests],
    )
    with _shown(runner) as seen:
        logits, prompt_scores = prefill(runner, cache, requests, chunk or longest, n_others)
    states = _directions(seen)
    before = [of_row[-len(r.tokens) :] for of_row, r in zip(states, requests, strict=True)]  # n d each, no padding
    parents = torch.arange(len(rows), device=logits.device)  # rows of the cache that are gone on from
    for index, row in rows:
        for piece in echoed(row, prompt_scores[index]):
            yield index, piece

    while True:
        allowed = torch.cat(
            [row.rules(of_row[None], [row.line]) for of_row, (_, row) in zip(logits, rows, strict=True)]
        )
        probabilities, candidates = allowed.softmax(-1).topk(k)  # b k
        check_numbers(probabilities[:, 0])
        cache.reorder(parents.repeat_interleave(k))
        with _shown(runner) as seen:
            following = runner.step(candidates.flatten(), cache)  # b*k vocab
        states = _directions(seen).unflatten(0, (-1, k)).squeeze(2)  # b k d
        likeness = torch.stack([(own @ past.T).amax(-1) for own, past in zip(states, before, strict=True)])  # b k
        ranked = (1 - contrast.penalty_alpha) * probabilities - contrast.penalty_alpha * likeness
        best = ranked.masked_fill(allowed.gather(1, candidates) == -math.inf, -math.inf).argmax(-1, keepdim=True)  # b 1
        chosen = candidates.gather(1, best)
        scores = score(logits[:, None], chosen, n_others)
        going: list[int] = []
        for place, ((index, row), token) in enumerate(zip(rows, chosen[:, 0].tolist(), strict=True)):
            piece = row.piece(token, *scores[place][0])
            if piece.finish is None:
                going.append(place)
            yield index, piece
        if not going:
            return
        rows = [rows[place] for place in going]
        taken = best[:, 0].tolist()
        before = [torch.cat((before[place], states[place, taken[place]][None])) for place in going]
        parents = torch.tensor([place * k + taken[place] for place in going], device=logits.device)
        logits = at_least_float32(following[parents])


@contextmanager
def _shown(runner: ModelRunner) -> Iterator[list[Tensor]]:
    """The last hidden states of each pass in the block, ``(b, n, d)``."""
    seen: list[Tensor] = []
    with watching(runner.model, "decoder.output", change=lambda _, states: seen.append(states)):
        yield seen


def _directions(states: Sequence[Tensor]) -> Tensor:
    """Of several passes, ``(b, n, d)`` in all, each of length 1: a product is a cosine."""
    return F.normalize(at_least_float32(torch.cat(list(states), 1)), dim=-1)
