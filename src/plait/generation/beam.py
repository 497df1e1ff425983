"""Beam search: at every step keep the few likeliest continuations of a row, and of those that ended the best.

    beams 2        a ─┬─ b ── d*         * ended: held with its score, the sum of its log-probabilities divided by
                      └─ c ── e ── f*      length ** length_penalty; only a better one takes its place

Rows of a batch are searched apart: each is what it would be alone. Scores and rules for stopping are those of the
transformers library; where it fills up beams that do not exist yet with copies, here there are fewer.
"""

# r hypotheses of one search, b of all

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from plait.generation.decode import echoed, prefill
from plait.generation.errors import GenerationError
from plait.generation.ranking import Candidate, largest, likeliest
from plait.generation.records import Piece
from plait.generation.row import Alternatives, Request, Row, Score, at_least_float32
from plait.generation.rules import NONE_LEFT, Line, LogitRules
from plait.generation.runner import Runner
from plait.generation.sampling import check_numbers
from plait.generation.search import Search
from plait.generation.threads import on_one_thread
from plait.generation.transcript import Transcript

if TYPE_CHECKING:
    from plait.text import Tokenizer

_TOGETHER = 1 << 18  # logits that are ranked together


class Found(NamedTuple):
    """One continuation that ended: its score, where beams were searched, and its pieces."""

    score: float | None
    pieces: list[Piece]


@torch.inference_mode()
def beam_search(
    runner: Runner,
    requests: Sequence[Request],
    search: Search,
    *,
    tokenizer: Tokenizer | None = None,
    preallocate: bool = True,
    chunk: int | None = None,
) -> Iterator[tuple[int, list[Found]]]:
    """Search every request to its end: ``(which request, its n best)``, best first, each as soon as it is known.

    There are fewer than ``n_best`` only where so many continuations do not exist. ``preallocate``, ``chunk``: as in
    ``decode``.
    """
    if not requests:
        return
    longest, k = max(len(r.tokens) for r in requests), max(r.alternatives for r in requests)
    cache = runner.cache(
        len(requests),
        capacity=longest + max(r.limit for r in requests) if preallocate else None,
        total_lengths=[len(r.tokens) + r.limit for r in requests],
    )
    logits, prompt_scores = prefill(runner, cache, requests, chunk or longest, k)
    groups = [[_Group(r, search, tokenizer) for _ in range(search.beam_groups)] for r in requests]
    rows = [row for row in range(len(requests)) for _ in range(search.beam_groups)]  # all groups go on from one prompt
    if search.beam_groups > 1:
        cache.reorder(torch.tensor(rows, device=logits.device))
        logits = logits[rows]
    while True:
        parents = _advance(groups, logits, k)
        for index, own in enumerate(groups):
            if own and all(group.over for group in own):
                groups[index] = []
                yield index, _best(own, requests[index], search.n_best, tokenizer, prompt_scores[index])
        if not parents:
            return
        if parents != list(range(len(logits))):
            cache.reorder(torch.tensor(parents, device=logits.device))
        chosen = [hypothesis.line.tokens[-1] for own in groups for group in own for hypothesis in group.running]
        logits = at_least_float32(runner.step(torch.tensor(chosen, device=logits.device), cache))


@on_one_thread
def _advance(groups: Sequence[Sequence[_Group]], logits: Tensor, k: int) -> list[int]:
    """One step of every search, over ``logits`` ``(b, vocab)`` after each of their hypotheses: which of its rows those
    that are running now go on from."""
    parents: list[int] = []
    start = 0
    for part in _parts(groups, logits.shape[1]):
        end = start + sum(len(group.running) for group in part)
        parents += [start + parent for parent in _advance_part(part, logits[start:end], k)]
        start = end
    return parents


def _parts(groups: Sequence[Sequence[_Group]], vocab_size: int) -> Iterator[list[_Group]]:
    """Neighbours that are ranked together: so many of one kind that their logits stay in the cache of a processor; of
    a diverse search its groups, which go by one another's choices."""
    part: list[_Group] = []
    n = 0
    for own in groups:
        running = [group for group in own if group.running]
        rows = sum(len(group.running) for group in running)
        if part and (n + rows > _TOGETHER // vocab_size or len(own) > 1 or running and not running[0].like(part[0])):
            yield part
            part, n = [], 0
        part, n = part + running, n + rows
    if part:
        yield part


def _advance_part(part: Sequence[_Group], logits: Tensor, k: int) -> list[int]:
    """``_advance`` of a few neighbours."""
    rules, search = part[0].rules, part[0].search
    own = logits.log_softmax(-1)
    check_numbers(own[:, 0])
    left = rules.apply(own, [hypothesis.line for group in part for hypothesis in group.running])
    if search.renormalize:
        left = torch.where(left == -math.inf, left, left.log_softmax(-1))
    totals = left.new_tensor([hypothesis.total for group in part for hypothesis in group.running])
    sizes = [len(group.running) for group in part]
    candidates = (
        _diverse(part, own, left, totals)
        if search.diversity
        else likeliest(own, left, totals, sizes, part[0].n_candidates)
    )
    others = _alternatives(own, k)
    parents: list[int] = []
    start = 0
    for i, group in enumerate(part):
        found = next(candidates) if isinstance(candidates, Iterator) else candidates[i]
        chosen = group.take(found, others[start : start + sizes[i]])
        parents += [] if group.over else [start + parent for parent in chosen]
        if group.over:
            group.running = []
        start += sizes[i]
    return parents


def _diverse(part: Sequence[_Group], own: Tensor, left: Tensor, totals: Tensor) -> Iterator[list[Candidate]]:
    """The candidates of each group, once those before it have chosen: what they chose at this step counts less."""
    taken = torch.zeros(left.shape[-1], dtype=left.dtype, device=left.device)
    start = 0
    for group in part:
        rows = slice(start, start + len(group.running))
        sums = left[rows] + totals[rows, None]
        places = largest((sums - group.search.diversity * taken).flatten(), group.n_candidates)
        found = [divmod(place, left.shape[-1]) for place in places]
        yield [Candidate(row, token, float(sums[row, token]), float(own[rows][row, token])) for row, token in found]
        for token in group.taken:
            taken[token] += 1
        start = rows.stop


@dataclass(frozen=True, slots=True)
class _Hypothesis:
    """One continuation: its row, the sum of what the rules left its tokens, each token's own score, and its text, where
    strings may stop it."""

    line: Line
    total: float = 0.0
    scores: tuple[Score, ...] = ()
    transcript: Transcript | None = None


class _Group:
    """One search: of a request, or of one group of its beams."""

    def __init__(self, request: Request, search: Search, tokenizer: Tokenizer | None) -> None:
        self.request, self.search = request, search
        self.rules = LogitRules(request.settings)
        line = Line(list(request.tokens), len(request.tokens), request.limit, request.source)
        before = () if request.source is not None else request.tokens
        stop = request.settings.stop
        transcript = Transcript(tokenizer, stop, before) if stop else None
        self.running = [_Hypothesis(line, transcript=transcript)]  # likeliest first
        self.ended: list[tuple[float, _Hypothesis]] = []  # with their scores, best first
        self.taken: list[int] = []  # the tokens chosen at the last step

    @property
    def n_candidates(self) -> int:
        """So many that, whichever of them end, as many as there are beams do not."""
        return max(2, 1 + len(self.request.settings.end)) * self.search.width

    def like(self, other: _Group) -> bool:
        """Whether the same rules rank both."""
        mine, others = self.request.settings, other.request.settings
        return mine is others or mine == others

    def take(self, candidates: Sequence[Candidate], others: Sequence[Alternatives]) -> list[int]:
        """Go on with the best of the candidates, ``others`` being the alternatives after each that is running: which of
        these each of the next ones goes on from."""
        if not candidates and not self.ended:
            raise GenerationError(NONE_LEFT)
        width = self.search.width
        self.taken = []
        parents: list[int] = []
        going: list[_Hypothesis] = []
        for rank, (parent, token, total, own) in enumerate(candidates):
            before = self.running[parent]
            ends_here, transcript = self._ends(before, token)
            if rank >= width if ends_here else len(going) == width:
                continue  # what ends behind the first few was there only in the place of others
            self.taken.append(token)
            line = before.line.fork()
            line.add(token)
            new = _Hypothesis(line, total, (*before.scores, (own, others[parent])), transcript)
            if ends_here:
                self.ended.append((self.search.score(total, line.n_new), new))
            else:
                going.append(new)
                parents.append(parent)
        self.ended = sorted(self.ended, key=lambda pair: -pair[0])[:width]
        self.running = going
        return parents

    def _ends(self, before: _Hypothesis, token: int) -> tuple[bool, Transcript | None]:
        """Whether a token ends what stands before it, and the text that goes on where it does not."""
        if token in self.request.settings.end or before.line.n_new + 1 == before.line.limit:
            return True, None
        if before.transcript is None:
            return False, None
        transcript = before.transcript.fork()
        transcript.push(token)
        return transcript.stopped, transcript

    @property
    def over(self) -> bool:
        """Whether nothing that is running is to be written on."""
        if not self.running:
            return True
        if len(self.ended) < self.search.width:
            return False
        if self.search.early_stopping is True:
            return True
        line = self.running[0].line
        longest = self.search.early_stopping == "never" and self.search.length_penalty > 0
        best = max(hypothesis.total for hypothesis in self.running)
        return self.search.score(best, line.limit if longest else line.n_new) <= self.ended[-1][0]


def _alternatives(logprobs: Tensor, k: int) -> list[Alternatives]:
    """The k likeliest tokens of each row ``(r, vocab)``, with their log-probabilities."""
    if k == 0:
        return [()] * len(logprobs)
    top = logprobs.topk(min(k, logprobs.shape[-1]))
    return [
        tuple(zip(ids, values, strict=True))
        for ids, values in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def _best(
    groups: Sequence[_Group], request: Request, n: int, tokenizer: Tokenizer | None, prompt_scores: list[Score]
) -> list[Found]:
    """The ``n`` best of what ended in any of the groups, as pieces."""
    ended = sorted((pair for group in groups for pair in group.ended), key=lambda pair: -pair[0])
    found: list[Found] = []
    for score, hypothesis in ended[:n]:
        row = Row(request, tokenizer)
        pieces = list(echoed(row, prompt_scores))
        new = hypothesis.line.tokens[hypothesis.line.n_prompt :]
        pieces += [row.piece(token, *own) for token, own in zip(new, hypothesis.scores, strict=True)]
        found.append(Found(score, pieces))
    return found
