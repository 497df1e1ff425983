"""Logit rules: what may not follow, what must, and what is made less likely, before a token is chosen.

Pure functions of ``(b, vocab)`` logits, and ``LogitRules``, which applies those that are on in a fixed order:
penalties, repeated n-grams, banned sequences, ends too early, forced tokens. The transformers library gives the same.
"""

# b rows

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.generation.errors import GenerationError
from plait.generation.settings import Settings


def penalise_repetition(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """CTRL's penalty (Keskar et al. 2019, 4.1) on every token ``seen``, ``(b, vocab)`` boolean, once however often it
    stood: positive logits are divided by it and negative ones multiplied, so that both fall."""
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def penalise_counts(logits: Tensor, counts: Tensor, frequency: float, presence: float) -> Tensor:
    """Subtract ``frequency`` for each time a token was written, and ``presence`` once if it was at all.

    ``counts``: ``(b, vocab)``, over new tokens only.
    """
    return logits - frequency * counts - presence * (counts > 0).to(logits.dtype)


def ban(logits: Tensor, ids: Sequence[Collection[int]]) -> Tensor:
    """Row r never continues with any of ``ids[r]``."""
    places = [(row, token) for row, tokens in enumerate(ids) for token in tokens]
    if not places:
        return logits
    rows, columns = torch.tensor(places, device=logits.device).T
    return logits.index_put((rows, columns), logits.new_tensor(-math.inf))


def force(logits: Tensor, ids: Sequence[int | None]) -> Tensor:
    """Row r continues with ``ids[r]`` and nothing else, where there is one."""
    rows = [row for row, token in enumerate(ids) if token is not None]
    if not rows:
        return logits
    logits = logits.clone()
    logits[rows] = -math.inf
    logits[rows, [token for token in ids if token is not None]] = 0.0
    return logits


def repeated_ngrams(tokens: Sequence[int], n: int) -> set[int]:
    """The ids that would complete an n-gram which already stands in ``tokens``."""
    tail = list(tokens[len(tokens) - n + 1 :]) if n > 1 else []
    if len(tail) < n - 1:
        return set()
    return {tokens[i + n - 1] for i in range(len(tokens) - n + 1) if list(tokens[i : i + n - 1]) == tail}


def completed(tokens: Sequence[int], sequences: Sequence[tuple[int, ...]]) -> set[int]:
    """The ids that would complete one of the banned ``sequences``."""
    return {
        s[-1] for s in sequences if len(s) <= len(tokens) + 1 and list(tokens[len(tokens) - len(s) + 1 :]) == [*s[:-1]]
    }


@dataclass(slots=True)
class Line:
    """One row as the rules see it: its real tokens, how many of them were the prompt, and how many may be new."""

    tokens: list[int]
    n_prompt: int
    limit: int

    @property
    def n_new(self) -> int:
        """Tokens written so far."""
        return len(self.tokens) - self.n_prompt


class LogitRules:
    """The rules of ``settings`` that are on, for a batch of rows, with what they must remember of each."""

    def __init__(self, settings: Settings, lines: Sequence[Line], vocab_size: int, device: torch.device) -> None:
        s = self.settings = settings
        shape = len(lines), vocab_size
        self.always = [sequence[0] for sequence in s.banned if len(sequence) == 1]
        self.sequences = [sequence for sequence in s.banned if len(sequence) > 1]
        self.seen = torch.zeros(shape, dtype=torch.bool, device=device) if s.repetition_penalty != 1 else None
        self.counts = torch.zeros(shape, device=device) if s.frequency_penalty or s.presence_penalty else None
        if self.seen is not None:
            for row, line in enumerate(lines):
                self.seen[row, line.tokens] = True
        self.on = (
            any(memory is not None for memory in (self.seen, self.counts, s.forced_first, s.forced_last))
            or any((s.banned, s.no_repeat_ngram))
            or (bool(s.end) and bool(s.min_length or s.min_new_tokens))
        )

    def __call__(self, logits: Tensor, lines: Sequence[Line]) -> Tensor:
        """``(b, vocab)`` -> ``(b, vocab)``; ``GenerationError`` if a row is left without any token to choose."""
        if not self.on:
            return logits
        s = self.settings
        if self.seen is not None:
            logits = penalise_repetition(logits, self.seen, s.repetition_penalty)
        if self.counts is not None:
            logits = penalise_counts(logits, self.counts, s.frequency_penalty, s.presence_penalty)
        logits = ban(logits, [self._banned(line) for line in lines])
        logits = force(logits, [self._forced(line) for line in lines])
        if bool((logits.amax(-1) == -math.inf).any()):
            raise GenerationError("banned: every token of the vocabulary is banned here; leave at least one.")
        return logits

    def _banned(self, line: Line) -> set[int]:
        s = self.settings
        banned = {*self.always, *completed(line.tokens, self.sequences)}
        if s.no_repeat_ngram:
            banned |= repeated_ngrams(line.tokens, s.no_repeat_ngram)
        if len(line.tokens) < s.min_length or line.n_new < s.min_new_tokens:
            banned.update(s.end)
        return banned

    def _forced(self, line: Line) -> int | None:
        if line.n_new == line.limit - 1 and self.settings.forced_last is not None:
            return self.settings.forced_last
        return self.settings.forced_first if len(line.tokens) == 1 else None

    def remember(self, tokens: Tensor) -> None:
        """What was chosen: ``(b,)`` ids."""
        if self.seen is not None:
            self.seen.scatter_(1, tokens[:, None], True)
        if self.counts is not None:
            self.counts.scatter_add_(1, tokens[:, None], torch.ones_like(self.counts[:, :1]))

    def reorder(self, rows: Tensor) -> None:
        """The batch becomes these ``(b',)`` of its rows."""
        self.seen = None if self.seen is None else self.seen[rows]
        self.counts = None if self.counts is None else self.counts[rows]
