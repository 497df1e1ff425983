"""Logit rules: what may not follow, what must, and what is made less likely, before a token is chosen.

Pure functions of ``(b, vocab)`` logits, and ``LogitRules``, which applies those that are on in a fixed order:
penalties, repeated n-grams, banned sequences, ends too early, constraints, forced tokens. The transformers library
gives the same.
"""

# b rows

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plait.generation.errors import GenerationError
from plait.generation.settings import Settings

if TYPE_CHECKING:
    from plait.generation.constraint import Constraint, Matcher

NONE_LEFT = "banned: every token of the vocabulary is banned here; leave at least one."


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


def repeated_ngrams(tokens: Sequence[int], n: int, read: Sequence[int] | None = None) -> set[int]:
    """The ids that would complete an n-gram which already stands in ``tokens``, or in what was ``read``."""
    tail, known = list(tokens[len(tokens) - n + 1 :]) if n > 1 else [], tokens if read is None else read
    if len(tail) < n - 1:
        return set()
    return {known[i + n - 1] for i in range(len(known) - n + 1) if list(known[i : i + n - 1]) == tail}


def completed(tokens: Sequence[int], sequences: Sequence[tuple[int, ...]]) -> set[int]:
    """The ids that would complete one of the banned ``sequences``."""
    return {
        s[-1] for s in sequences if len(s) <= len(tokens) + 1 and list(tokens[len(tokens) - len(s) + 1 :]) == [*s[:-1]]
    }


@dataclass(slots=True)
class Line:
    """One row as the rules see it: its real tokens, how many of them were the prompt, how many may be new, its source;
    and what the rules remember of it, from when they first need it, ``(vocab,)`` each but for the last."""

    tokens: list[int]
    n_prompt: int
    limit: int
    source: Sequence[int] | None = None
    seen: Tensor | None = None
    counts: Tensor | None = None
    matcher: Matcher | None = None

    @property
    def n_new(self) -> int:
        """Tokens written so far."""
        return len(self.tokens) - self.n_prompt

    def fork(self) -> Line:
        """A row of its own that has all this one has."""
        seen, counts = (None if held is None else held.clone() for held in (self.seen, self.counts))
        matcher = None if self.matcher is None else self.matcher.fork()
        return Line(list(self.tokens), self.n_prompt, self.limit, self.source, seen, counts, matcher)

    def add(self, token: int) -> None:
        """One more token was written."""
        self.tokens.append(token)
        if self.seen is not None:
            self.seen[token] = True
        if self.counts is not None:
            self.counts[token] += 1
        if self.matcher is not None:
            self.matcher.take(token)


class LogitRules:
    """The rules of ``settings`` that are on; what they must remember of a row, its line holds."""

    def __init__(self, settings: Settings) -> None:
        s = self.settings = settings
        self.always = torch.tensor([sequence[0] for sequence in s.banned if len(sequence) == 1], dtype=torch.int64)
        self.sequences = [sequence for sequence in s.banned if len(sequence) > 1]
        self.repeats = s.repetition_penalty != 1
        self.counts = bool(s.frequency_penalty or s.presence_penalty)
        self.on = (
            any((self.repeats, self.counts, s.banned, s.no_repeat_ngram, s.no_repeat_source_ngram))
            or any(forced is not None for forced in (s.forced_first, s.forced_last))
            or (bool(s.end) and bool(s.min_length or s.min_new_tokens))
            or s.constraint is not None
        )

    def __call__(self, logits: Tensor, lines: Sequence[Line]) -> Tensor:
        """``(b, vocab)`` -> ``(b, vocab)``; ``GenerationError`` if a row is left without any token to choose."""
        logits = self.apply(logits, lines)
        if self.on and bool((logits.amax(-1) == -math.inf).any()):
            raise GenerationError(NONE_LEFT)
        return logits

    def apply(self, logits: Tensor, lines: Sequence[Line]) -> Tensor:
        """The same, for a caller to whom a row without any token matters not."""
        if not self.on:
            return logits
        s = self.settings
        if self.repeats:
            logits = penalise_repetition(logits, seen(lines, logits), s.repetition_penalty)
        if self.counts:
            logits = penalise_counts(logits, counts(lines, logits), s.frequency_penalty, s.presence_penalty)
        if len(self.always):
            logits = logits.index_fill(-1, self.always.to(logits.device), -math.inf)
        logits = ban(logits, [self._banned(line) for line in lines])
        if s.constraint is not None:
            logits = logits.masked_fill(~matched(lines, s.constraint, s.end, logits), -math.inf)
        return force(logits, [self._forced(line) for line in lines])

    def _banned(self, line: Line) -> set[int]:
        s = self.settings
        banned = completed(line.tokens, self.sequences)
        if s.no_repeat_ngram:
            banned |= repeated_ngrams(line.tokens, s.no_repeat_ngram)
        if s.no_repeat_source_ngram:
            read = line.tokens[: line.n_prompt] if line.source is None else line.source
            banned |= repeated_ngrams(line.tokens, s.no_repeat_source_ngram, read)
        if len(line.tokens) < s.min_length or line.n_new < s.min_new_tokens:
            banned.update(s.end)
        return banned

    def _forced(self, line: Line) -> int | None:
        if line.n_new == line.limit - 1 and self.settings.forced_last is not None:
            return self.settings.forced_last
        return self.settings.forced_first if len(line.tokens) == 1 else None


def seen(lines: Sequence[Line], logits: Tensor) -> Tensor:
    """Which tokens stand in each row, prompt and all: ``(b, vocab)`` boolean."""
    for line in lines:
        if line.seen is None:
            line.seen = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
            line.seen[line.tokens] = True
    return torch.stack([line.seen for line in lines if line.seen is not None])


def counts(lines: Sequence[Line], logits: Tensor) -> Tensor:
    """How often each row wrote each token, ``(b, vocab)``."""
    for line in lines:
        if line.counts is None:
            written = torch.tensor(line.tokens[line.n_prompt :], dtype=torch.long, device=logits.device)
            line.counts = written.bincount(minlength=logits.shape[-1]).float()
    return torch.stack([line.counts for line in lines if line.counts is not None])


def matched(lines: Sequence[Line], constraint: Constraint, ends: Sequence[int], logits: Tensor) -> Tensor:
    """What each row's constraint lets follow, ``(b, vocab)`` boolean."""
    allowed: list[Tensor] = []
    for line in lines:
        if line.matcher is None:
            line.matcher = constraint.begin(line.tokens[line.n_prompt :])
        allowed.append(line.matcher.allowed(logits.shape[-1], ends))
    return torch.stack(allowed).to(logits.device)
