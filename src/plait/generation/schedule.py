"""Schedule: sequences that join and leave between steps, over any runner; each is what it would be alone.

    submit -> waiting -> prompt read in chunks -> one token a step, or a checked draft -> ended
                              |                                                            |
                              +--- a beginning that is known is not read again <-----------+

A step is one pass over everything that is to be read: the last token of every sequence that is being written, and as
much of the prompts that are waiting as its budget allows.
"""

# b sequences in a pass, n tokens

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from plait.generation.errors import GenerationError
from plait.generation.prefixes import Prefixes, shareable
from plait.generation.records import Piece
from plait.generation.row import Request, Row, at_least_float32, choose_next, score
from plait.generation.runner import Read, Runner, check_runner
from plait.generation.settings import Settings, check_ids, check_seed
from plait.generation.speculate import Draft, Drafter, Pace, verify

if TYPE_CHECKING:
    from plait.text import Tokenizer

Said = tuple[int, Piece | Exception]  # which sequence, and its next piece, or the error that ended it
_NOTHING = Draft([])


@dataclass(eq=False)
class _Sequence:
    """A request under way; the cache holds the first ``read`` of its tokens."""

    id: int
    row: Row
    shares: bool
    cache: Any = None
    read: int = 0
    identity: str | None = None  # of the weights that the cache is from, where it may be shared
    slides: bool = False  # the cache cannot go back, so that nothing can be tried in it
    pace: Pace = field(default_factory=Pace)

    @property
    def unread(self) -> int:
        """Tokens to be read before the next can be chosen."""
        return len(self.row.line.tokens) - self.read

    @property
    def writing(self) -> bool:
        """Whether only the token chosen last is unread."""
        return self.unread == 1 and self.row.line.n_new > 0

    def go_back(self, length: int) -> None:
        """The first ``length`` tokens are read; a cache that cannot forget the rest reads them again."""
        try:
            self.cache.truncate(length)
            self.read = length
        except ValueError:
            self.cache, self.read, self.slides = None, 0, True


class _Turn(NamedTuple):
    """What a sequence reads in a step: so many of its own tokens, and behind them a draft."""

    sequence: _Sequence
    n: int
    draft: Draft = _NOTHING


class Scheduler:
    """Any number of requests, written side by side. One thread drives it: ``submit`` and ``cancel`` between steps.

        scheduler = Scheduler(runner, tokenizer)
        id = scheduler.submit(Request(tokens=tokenizer.encode("Once"), limit=20, settings=Settings(temperature=0.8)))
        while not scheduler.idle:
            for id, said in scheduler.step():  # said: a Piece, or the Exception that ended this sequence
                ...

    Args:
        runner: who computes, ``plait.optimize(checkpoint)`` say.
        tokenizer: the checkpoint's, which makes text of tokens; of an encoder-decoder that of the target. Without one
            pieces have no text.
        rows: so many sequences are written at a time, further ones wait.
        chunk: prompt tokens read in a step, of all sequences together, so that nobody waits long for another's prompt.
        prefix_tokens: how many tokens of finished sequences are held for others that begin alike.
        drafter: who guesses ahead for all of them, made by ``plait.drafter``.

    Raises ``GenerationError`` for what is none of these.
    """

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer | None = None,
        *,
        rows: int = 16,
        chunk: int = 256,
        prefix_tokens: int = 0,
        drafter: Drafter | None = None,
    ) -> None:
        for name, value, least in (("rows", rows, 1), ("chunk", chunk, 1), ("prefix_tokens", prefix_tokens, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise GenerationError(f"{name}: {value!r} makes no sense; give a whole number from {least}.")
        check_runner(runner)
        if tokenizer is not None and not hasattr(tokenizer, "stream"):
            raise GenerationError(
                f"tokenizer: {type(tokenizer).__name__} is no tokenizer; give the checkpoint's, checkpoint.tokenizer."
            )
        if drafter is not None and not hasattr(drafter, "draft"):
            raise GenerationError(
                f"drafter: {type(drafter).__name__} is no drafter; make one with plait.drafter("
                '"lookup", runner, tokenizer), say.'
            )
        self.runner, self.tokenizer, self.drafter = runner, tokenizer, drafter
        self.rows, self.chunk = rows, chunk
        self.prefixes = Prefixes(prefix_tokens)
        self._ids = itertools.count()
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._waiting and not self._running

    @property
    def waiting(self) -> int:
        """Sequences that have not begun."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Sequences under way."""
        return len(self._running)

    def submit(self, request: Request) -> int:
        """Take a request, which joins at a coming step; its number. ``GenerationError`` where it cannot be written."""
        _check(self.runner, request)
        sequence = _Sequence(
            next(self._ids),
            Row(request, self.tokenizer),
            self.prefixes.room > 0 and shareable(self.runner.architecture, request),
        )
        self._waiting.append(sequence)
        return sequence.id

    def cancel(self, id: int) -> bool:
        """End a sequence here; no piece of it comes any more. Whether there was still something to end."""
        for place in (self._waiting, self._running):
            for sequence in place:
                if sequence.id == id:
                    place.remove(sequence)
                    self._keep(sequence)
                    return True
        return False

    @torch.inference_mode()
    def step(self) -> list[Said]:
        """One pass: ``(number, Piece)`` for what came of it, each sequence's in order; none where only prompts were
        read, and none when idle. A sequence whose own error ends it says that last, as ``(number, Exception)``, which
        is given and not raised: the others never see it."""
        while self._waiting and len(self._running) < self.rows:
            self._running.append(self._waiting.popleft())
        said: list[Said] = []
        turns = self._turns(said)
        single: list[tuple[_Sequence, Tensor]] = []
        for turn, logits in zip(turns, self._advance(turns), strict=True):
            sequence = turn.sequence
            if logits is None:
                continue
            if isinstance(logits, Exception):
                self._fail(sequence, logits, said)
                continue
            start, sequence.read = sequence.read, sequence.read + turn.n
            if sequence.row.request.echo and sequence.row.line.n_new == 0:
                said += [(sequence.id, piece) for piece in _echo(sequence.row, start, logits)]
            if sequence.unread:
                continue
            if sequence.row.line.n_new == 0:
                self._keep(sequence, fork=True)
            if turn.draft.tokens:
                self._check_draft(sequence, logits, turn.draft, said)
            else:
                single.append((sequence, logits[-1:]))
        self._choose(single, said)
        return said

    def _turns(self, said: list[Said]) -> list[_Turn]:
        """Who reads what: a sequence that is being written always its last token; of prompts a chunk, first come first
        served."""
        writing = [sequence for sequence in self._running if sequence.writing]
        drafts = self._drafts(writing, said)
        turns = [_Turn(s, 1, drafts.get(s.id, _NOTHING)) for s in writing if s in self._running]
        budget = self.chunk
        for sequence in [sequence for sequence in self._running if not sequence.writing]:
            if budget == 0:
                break
            try:
                if sequence.cache is None:
                    self._begin(sequence)
            except Exception as mistake:
                self._fail(sequence, mistake, said)
                continue
            n = min(budget, sequence.unread)
            budget -= n
            turns.append(_Turn(sequence, n))
        return turns

    def _begin(self, sequence: _Sequence) -> None:
        """A cache for a sequence: one that holds the start of it already, where there is one."""
        request = sequence.row.request
        if sequence.shares and not sequence.slides:
            sequence.identity = self.runner.identity
            if (found := self.prefixes.find(sequence.identity, request.tokens)) is not None:
                sequence.cache, sequence.read = found
                return
        sequence.cache = self.runner.cache(1, total_lengths=[len(request.tokens) + request.limit])

    def _drafts(self, writing: Sequence[_Sequence], said: list[Said]) -> dict[int, Draft]:
        """Guesses for those that are being written, as many as fit before their limit."""
        if self.drafter is None:
            return {}
        able = [(s, s.row.line.limit - s.row.line.n_new - 1) for s in writing if not s.slides]
        asked = [(s, length) for s, most in able if (length := min(s.pace.next(), most)) > 0]
        drafter = self.drafter

        def drafted(some: Sequence[tuple[_Sequence, int]]) -> list[Draft]:
            return drafter.draft([sequence.row for sequence, _ in some], [length for _, length in some])

        drafts: dict[int, Draft] = {}
        for (sequence, _), draft in zip(asked, _each(drafted, asked), strict=True):
            if isinstance(draft, Exception):
                self._fail(sequence, draft, said)
            else:
                drafts[sequence.id] = draft
        return drafts

    def _advance(self, turns: Sequence[_Turn]) -> list[Tensor | Exception | None]:
        """The runner's pass over all turns; if it fails, over each of them, so that only those at fault do.
        ``None`` for one that has to begin again."""
        if not turns:
            return []
        try:
            return [at_least_float32(logits) for logits in self.runner.advance([_read(turn) for turn in turns])]
        except Exception as mistake:
            if len(turns) == 1:
                return [mistake]
        for turn in turns:  # some have read what they should
            if int(turn.sequence.cache.lengths[0]) != turn.sequence.read:
                turn.sequence.go_back(turn.sequence.read)
        return [None if turn.sequence.cache is None else self._advance([turn])[0] for turn in turns]

    def _choose(self, sequences: Sequence[tuple[_Sequence, Tensor]], said: list[Said]) -> None:
        """A next token for each of the sequences, from its logits ``(1, vocab)``."""

        def chosen(some: Sequence[tuple[_Sequence, Tensor]]) -> list[tuple[int, Any]]:
            rows, logits = [s.row for s, _ in some], torch.cat([logits for _, logits in some])  # b vocab
            tokens = choose_next(logits, rows)
            scores = score(logits[:, None], tokens[:, None], max(row.request.alternatives for row in rows))
            return list(zip(tokens.tolist(), [of_row[0] for of_row in scores], strict=True))

        for (sequence, _), outcome in zip(sequences, _each(chosen, sequences), strict=True):
            if isinstance(outcome, Exception):
                self._fail(sequence, outcome, said)
                continue
            token, (value, others) = outcome
            piece = sequence.row.piece(token, value, others)
            said.append((sequence.id, piece))
            if piece.finish is not None:
                self._end(sequence)

    def _check_draft(self, sequence: _Sequence, logits: Tensor, draft: Draft, said: list[Said]) -> None:
        """Take what is right of a draft, and take the rest back out of the cache."""
        right, finished = 0, False
        try:
            for piece, guessed in verify(sequence.row, logits, draft):
                said.append((sequence.id, piece))
                right += guessed
                finished = piece.finish is not None
        except Exception as mistake:
            self._fail(sequence, mistake, said)
            return
        sequence.pace.saw(len(draft.tokens), right)
        held, sequence.read = sequence.read + len(draft.tokens), len(sequence.row.line.tokens) - 1
        if sequence.read < held:
            sequence.go_back(sequence.read)
        if finished:
            self._end(sequence)

    def _end(self, sequence: _Sequence) -> None:
        self._running.remove(sequence)
        self._keep(sequence)

    def _fail(self, sequence: _Sequence, mistake: Exception, said: list[Said]) -> None:
        self._running.remove(sequence)
        said.append((sequence.id, mistake))

    def _keep(self, sequence: _Sequence, *, fork: bool = False) -> None:
        """Hold what the sequence has read for others, unless weights changed on the way."""
        if sequence.shares and sequence.read and sequence.identity == self.runner.identity:
            cache = sequence.cache.fork(1) if fork else sequence.cache
            self.prefixes.keep(self.runner.identity, sequence.row.line.tokens[: sequence.read], cache)


def _read(turn: _Turn) -> Read:
    row, start = turn.sequence.row, turn.sequence.read
    tokens = row.line.tokens[start : start + turn.n]
    return Read(
        tokens=[*tokens, *turn.draft.tokens],
        cache=turn.sequence.cache,
        all_logits=bool(turn.draft.tokens) or (row.request.echo and row.line.n_new == 0),
        source=row.request.source if start == 0 else None,
        positions=row.request.places(start, start + len(tokens)),
    )


def _echo(row: Row, start: int, logits: Tensor) -> Iterator[Piece]:
    """The pieces of a prompt's tokens that are known once those from ``start`` on are read: logits ``(n, vocab)``."""
    tokens = row.line.tokens[: row.line.n_prompt]
    if start == 0:
        yield row.piece(tokens[0], None, (), new=False)
    scored = tokens[start + 1 : start + 1 + len(logits)]
    if scored:
        following = torch.tensor([scored], device=logits.device)
        (scores,) = score(logits[None, : len(scored)], following, row.request.alternatives)
        for token, (value, others) in zip(scored, scores, strict=True):
            yield row.piece(token, value, others, new=False)


def _each(work: Any, items: Sequence[Any]) -> list[Any]:
    """``work`` on all items together, a list of what comes of each; where that fails, on one at a time, and an error in
    place of what fails alone too."""
    if not items:
        return []
    try:
        return work(items)
    except Exception as mistake:
        return [mistake] if len(items) == 1 else [_each(work, [item])[0] for item in items]


def _check(runner: Runner, request: Request) -> None:
    """``GenerationError`` where a request is none, or does not fit the runner."""
    if not isinstance(request, Request):
        raise GenerationError(
            f"request: {type(request).__name__} is no request; give "
            "plait.Request(tokens=tokenizer.encode(text), limit=20), say."
        )
    if not isinstance(request.settings, Settings):
        raise GenerationError(
            f"request.settings: {type(request.settings).__name__} is none; give plait.Settings(temperature=0.8), say."
        )
    if not isinstance(request.tokens, Sequence):
        raise GenerationError(
            f"request.tokens: {type(request.tokens).__name__} is no list of token ids; give tokenizer.encode(text)."
        )
    check_seed(request.seed)
    a, n = runner.architecture, len(request.tokens)
    if a.head != "language":
        raise GenerationError(f"request: this {a.kind} has no language head to write with.")
    if n == 0:
        raise GenerationError("request.tokens: there are none; give at least one to go on from.")
    check_ids("request.tokens", request.tokens, a.vocab_size)
    if (request.source is not None) != (a.kind == "encoder-decoder"):
        raise GenerationError("request.source: an encoder-decoder reads one, and nothing else does.")
    if request.source is not None:
        check_ids("request.source", request.source, a.source_vocab_size)
        if not request.source or (a.max_length is not None and len(request.source) > a.max_length):
            raise GenerationError(
                f"request.source: {len(request.source)} tokens; give from 1 to {a.max_length or 'any'}."
            )
    if request.positions is not None and len(request.positions) != n:
        raise GenerationError(f"request.positions: {len(request.positions)} of them for {n} tokens; give one for each.")
    if isinstance(request.limit, bool) or not isinstance(request.limit, int) or request.limit < 1:
        raise GenerationError(f"request.limit: {request.limit!r} makes no sense; give a whole number from 1.")
    if a.max_length is not None and n >= a.max_length:
        raise GenerationError(
            f"request.tokens: {n} leave no room in a context of {a.max_length}; give at most {a.max_length - 1}."
        )
    if a.max_length is not None and n + request.limit > a.max_length:
        raise GenerationError(
            f"request: {n} tokens and {request.limit} new ones exceed the context of {a.max_length}; ask for at most "
            f"{a.max_length - n} new ones."
        )
    check_ids("request.settings.end", request.settings.end, a.vocab_size)
