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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from plait.checkpoint.notice import notice
from plait.generation.decode import echoed, prefill
from plait.generation.errors import GenerationError
from plait.generation.records import Piece
from plait.generation.row import Request, Row, Score, at_least_float32
from plait.generation.rules import NONE_LEFT, Line, LogitRules
from plait.generation.runner import Runner
from plait.generation.sampling import check_numbers
from plait.generation.threads import on_one_thread
from plait.generation.transcript import Transcript

if TYPE_CHECKING:
    from plait.checkpoint import DecodeRules
    from plait.text import Tokenizer

EarlyStopping = bool | Literal["never"]
_CALLERS = ("beams", "n_best")  # settled apart: the rest is what the rules say, unless the caller does


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a beam search goes.

    Args:
        beams: continuations that are written on at every step.
        n_best: how many of those that ended are handed out.
        length_penalty: a score is the sum of log-probabilities over (new tokens, the end included) ** length_penalty: 0
            is the sum, 1 the mean; the larger, the longer are the texts.
        early_stopping: when a row is done that has as many ended ones as beams. ``True``: at once. ``False``: when none
            that is being written would beat the worst of them if it ended now. ``"never"``: when none could at any
            length it may still have.
        renormalize: what the rules leave of a distribution is one again. Without it a score is the model's own
            log-probability, that of banned tokens left unused.
        beam_groups: diverse beam search (Vijayakumar et al. 2016): the beams are so many groups, written in turn.
        diversity: taken, when a group chooses its next tokens, for each time an earlier group chose the same at this
            step; no part of a score.

    Raises ``GenerationError`` where a value makes no sense.
    """

    beams: int
    n_best: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    renormalize: bool = False
    beam_groups: int = 1
    diversity: float = 0.0

    def __post_init__(self) -> None:
        for name in ("beams", "n_best", "beam_groups"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise GenerationError(f"{name}: {value!r} makes no sense; give a whole number from 1.")
        for name, least, most in (("length_penalty", -30, 30), ("diversity", 0, 1e30)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise GenerationError(f"{name}: {value!r} makes no sense; give a number from {least} to {most:g}.")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise GenerationError(f"early_stopping: {self.early_stopping!r} is neither True, False nor 'never'.")
        if self.n_best > self.beams:
            beams = "1 beam" if self.beams == 1 else f"{self.beams} beams"
            raise GenerationError(f"n_best: {self.n_best} is more than {beams}; give as many beams at least.")
        if self.beams % self.beam_groups:
            raise GenerationError(
                f"beam_groups: {self.beams} beams are not {self.beam_groups} groups of one size; give a divisor."
            )
        if (self.diversity == 0) != (self.beam_groups == 1):
            raise GenerationError(
                f"beam_groups, diversity: {self.beam_groups} and {self.diversity:g} do not go together; give several "
                "groups and a diversity above 0, or neither."
            )

    @property
    def width(self) -> int:
        """Beams of a group."""
        return self.beams // self.beam_groups

    def score(self, total: float, length: int) -> float:
        """Of ``length`` new tokens whose log-probabilities sum to ``total``; what was read first does not count."""
        return total / length**self.length_penalty


def settle_search(rules: DecodeRules, wishes: dict[str, Any]) -> Search | None:
    """The caller's ``wishes`` for a beam search, which are taken out, over the checkpoint's rules; ``None`` where it is
    one beam, which is no search, or where tokens are drawn."""
    asked = {name: wishes.pop(name, None) for name in Search.__annotations__}
    given = {name: value for name, value in asked.items() if value is not None}
    drawn = (wishes.get("temperature") or 0) > 0
    beams = given.pop("beams", 1 if drawn else rules.beams)
    own = {} if beams == 1 else {name: getattr(rules, name) for name in Search.__annotations__ if name not in _CALLERS}
    search = Search(beams=beams, **{**own, **given})
    if beams == 1:
        if without := [name for name in given if name not in _CALLERS]:
            raise GenerationError(f"{without[0]}: it changes nothing without a beam search; give beams from 2.")
        return None
    if drawn:
        raise GenerationError(
            f"beams: {beams} are searched for the likeliest, not drawn; give temperature=0, or beams=1."
        )
    if rules.sample and wishes.get("temperature") is None:
        notice(f"rules: the checkpoint asks for {beams} beams and for drawn tokens; the likeliest are searched for.")
    wishes["temperature"] = 0.0
    return search


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
    for own in groups:
        taken = torch.zeros(logits.shape[-1], dtype=logits.dtype, device=logits.device)
        kept: list[int] = []
        for group in own:
            n = len(group.running)
            if n == 0:
                continue
            chosen = group.advance(logits[start : start + n], taken, k)
            kept += [] if group.over else [start + parent for parent in chosen]
            if group.over:
                group.running = []
            start += n
        parents += kept
    return parents


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

    def advance(self, logits: Tensor, taken: Tensor, k: int) -> list[int]:
        """Take logits ``(r, vocab)`` after each that is running: which of them each of the next ones goes on from.

        ``taken``: how often earlier groups chose each token, ``(vocab,)``; this one's choices are added.
        """
        width, ends = self.search.width, self.request.settings.end
        own = logits.log_softmax(-1)
        check_numbers(own[:, 0])
        left = self.rules.apply(own, [hypothesis.line for hypothesis in self.running])
        if self.search.renormalize:
            left = torch.where(left == -math.inf, left, left.log_softmax(-1))
        totals = left + left.new_tensor([hypothesis.total for hypothesis in self.running])[:, None]  # r vocab
        ranked = totals - self.search.diversity * taken if self.search.diversity else totals
        # So many that, whichever of them end, as many as there are beams do not
        places = _largest(ranked.flatten(), max(2, 1 + len(ends)) * width)
        if not places and not self.ended:
            raise GenerationError(NONE_LEFT)
        others = _alternatives(own, k)
        parents: list[int] = []
        going: list[_Hypothesis] = []
        for rank, place in enumerate(places):
            parent, token = divmod(place, logits.shape[-1])
            before, total = self.running[parent], float(totals[parent, token])
            ends_here, transcript = self._ends(before, token)
            if rank >= width if ends_here else len(going) == width:
                continue  # what ends behind the first few was there only in the place of others
            taken[token] += 1
            line = before.line.fork()
            line.add(token)
            new = _Hypothesis(line, total, (*before.scores, (float(own[parent, token]), others[parent])), transcript)
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


def _largest(values: Tensor, n: int) -> list[int]:
    """The places of the ``n`` largest of ``values`` ``(m,)``, largest first, of equal ones the first; -inf is none."""
    least = values.topk(min(n, len(values))).values[-1]
    places = ((values >= least) & (values > -math.inf)).nonzero()[:, 0]
    return places[values[places].sort(descending=True, stable=True).indices[:n]].tolist()


def _alternatives(logprobs: Tensor, k: int) -> list[tuple[tuple[int, float], ...]]:
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
