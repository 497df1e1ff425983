"""Speculate: guess several tokens ahead, check the guesses in one pass, and keep those that would have been written.

    row ... a b c      a draft guesses d e f      one pass reads c d e f: logits after each
    -> d and e are what the row says, f is not: the row goes on with d, e and what it says in place of f

The text is the one without speculation: each token is chosen by the row's own rules, at its own place, whatever was
guessed. A guess is right if it is the token that is chosen, greedily or drawn; which accepts it with its probability
and otherwise draws from the rest. A guess that was itself drawn is checked by rejection sampling instead (Leviathan et
al. 2023, algorithm 1; Chen et al. 2023, algorithm 2), which accepts more: not the same draw, but the same distribution.
"""

# k tokens of a draft

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from plait.generation.errors import GenerationError, in_words
from plait.generation.prefixes import common
from plait.generation.records import Piece
from plait.generation.row import Row, at_least_float32, choose_next, score
from plait.generation.runner import ModelRunner, Read, Runner, check_in_memory
from plait.generation.sampling import draw, likeliest, narrow

if TYPE_CHECKING:
    from plait.text import Tokenizer

LONGEST = 16  # tokens of a draft
_WAYS = 'give "lookup", a smaller checkpoint, or a runner of one, plait.optimize(draft)'


class Draft(NamedTuple):
    """Guesses at a row's next tokens; and, where they were drawn, the probabilities ``(k, vocab)`` they had."""

    tokens: list[int]
    probabilities: Tensor | None = None


class Drafter(Protocol):
    """Guesses the next tokens of rows; what it remembers of a row goes when the row does."""

    def draft(self, rows: Sequence[Row], lengths: Sequence[int]) -> list[Draft]:
        """For each row at most so many tokens, or none."""
        ...


def drafter(wish: Any, runner: Runner, tokenizer: Tokenizer | None) -> Drafter | None:
    """Who drafts for ``runner``: ``None``, ``"lookup"``, or a smaller checkpoint or runner of the same vocabulary, or
    both, ``(checkpoint, runner)``.

    ``GenerationError`` for anything else.
    """
    if wish is None:
        return None
    if isinstance(wish, str):
        if wish != "lookup":
            raise GenerationError(f"speculate: {wish!r} is no way to draft; {_WAYS}.")
        return Lookup()
    theirs, draft = _opened(wish)
    mine, its = runner.architecture, draft.architecture
    if its.kind != mine.kind or its.head != "language":
        raise GenerationError(f"speculate: the draft is {in_words(its)}; give one that writes, and is {mine.kind} too.")
    if tokenizer is not None and theirs is not None:
        if (at := _first_difference(tokenizer, theirs)) is not None:
            raise GenerationError(
                f"speculate: the draft's vocabulary is another one ({len(theirs)} tokens against {len(tokenizer)}; the "
                f"first difference is at id {at}); give a checkpoint with the same tokenizer."
            )
    elif its.vocab_size != mine.vocab_size:
        raise GenerationError(
            f"speculate: the draft has {its.vocab_size} tokens and the model {mine.vocab_size}; give one with the same "
            "vocabulary."
        )
    if mine.kind == "encoder-decoder" and its.source_vocab_size != mine.source_vocab_size:
        raise GenerationError(
            f"speculate: the draft reads a source of {its.source_vocab_size} tokens and the model one of "
            f"{mine.source_vocab_size}; give one with the same vocabulary."
        )
    return ModelDrafter(draft, mine.vocab_size)


def _opened(wish: Any) -> tuple[Tokenizer | None, Runner]:
    """The tokenizer, where it is known, and the runner of a draft."""
    both: tuple[Any, ...] = wish if isinstance(wish, tuple) and len(wish) == 2 else (wish,)
    draft, theirs = both[-1], getattr(both[0], "tokenizer", None)
    if len(both) == 1 and hasattr(draft, "model") and not hasattr(draft, "advance"):
        check_in_memory("speculate", draft.model, "speculate=plait.optimize(draft)")
        draft = ModelRunner(draft.model)
    if not hasattr(draft, "advance"):
        raise GenerationError(f"speculate: {type(draft).__name__} cannot draft; {_WAYS}.")
    return theirs if theirs is None or theirs.target is None else theirs.target, draft


def _first_difference(one: Tokenizer, other: Tokenizer) -> int | None:
    def token(tokenizer: Tokenizer, id: int) -> str | None:
        try:
            return tokenizer.token(id)
        except ValueError:
            return None  # a gap

    ids = range(max(len(one), len(other)))
    return next((id for id in ids if token(one, id) != token(other, id)), None)


class Pace:
    """How many tokens to draft: twice as many after a draft that was all right, one more than were right otherwise;
    after one that was all wrong none for a while, and for longer each time."""

    def __init__(self) -> None:
        self.length, self._rest, self._next_rest = 4, 0, 1

    def next(self) -> int:
        """For this step."""
        if self._rest:
            self._rest -= 1
            return 0
        return self.length

    def saw(self, drafted: int, right: int) -> None:
        """So many of those drafted were right."""
        if right == drafted:
            self.length = min(2 * max(self.length, drafted), LONGEST)
        else:
            self.length = right + 1
        if right:
            self._next_rest = 1
        else:
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, LONGEST)


def verify(row: Row, logits: Tensor, draft: Draft) -> Iterator[tuple[Piece, bool]]:
    """The pieces that a row's ``logits`` ``(1 + k, vocab)`` make, each with whether it was the one drafted: up to the
    first that was not, or one more than was drafted, or the row's end."""
    for at in range(len(logits)):
        here, guess = logits[at : at + 1], draft.tokens[at] if at < len(draft.tokens) else None
        if guess is None or draft.probabilities is None or row.settings.greedy:
            token = int(choose_next(here, [row]))
        else:
            target = narrow(row.rules(here, [row.line]), row.settings)[0].exp()
            token = accept_or_redraw(target, draft.probabilities[at].to(target.device), guess, row.generator)
        (((value, others),),) = score(
            here[:, None], torch.tensor([[token]], device=here.device), row.request.alternatives
        )
        piece = row.piece(token, value, others)
        yield piece, token == guess
        if piece.finish is not None or token != guess:
            return


def accept_or_redraw(target: Tensor, draft: Tensor, token: int, generator: torch.Generator) -> int:
    """``token``, drawn from ``draft`` ``(vocab,)``, with probability min(1, target / draft); else one drawn from what
    ``target`` has more of. Whatever ``draft`` is, what comes out is distributed as ``target``."""
    uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
    if uniform * float(draft[token]) < float(target[token]):
        return token
    return int(draw(residual(target, draft).log()[None], [generator]))


def residual(target: Tensor, draft: Tensor) -> Tensor:
    """What is drawn from once a token of ``draft`` was rejected: max(0, target - draft), normalised; ``(vocab,)``."""
    rest = (target - draft).clamp(min=0)
    total = rest.sum()
    return rest / total if total > 0 else target  # rejected by rounding alone: the two are equal


class Lookup:
    """Drafts from the row itself: what followed when its last few tokens last stood there (prompt look-up)."""

    sizes = (4, 3, 2)  # how many; of several that were met before, the longest counts

    def __init__(self) -> None:
        self._indexes: WeakKeyDictionary[Row, _Index] = WeakKeyDictionary()

    def draft(self, rows: Sequence[Row], lengths: Sequence[int]) -> list[Draft]:
        """See ``Drafter``."""
        return [Draft(self._draft(row, length)) for row, length in zip(rows, lengths, strict=True)]

    def _draft(self, row: Row, length: int) -> list[int]:
        index, tokens = self._indexes.setdefault(row, _Index()), row.line.tokens
        for i in range(index.known, len(tokens)):
            for n in self.sizes:
                if n <= i:
                    index.follows[tuple(tokens[i - n : i])] = i
        index.known = len(tokens)
        found = (index.follows.get(tuple(tokens[-n:])) for n in self.sizes if n <= len(tokens))
        start = next((at for at in found if at is not None), None)
        if start is None:
            return []
        drafted: list[int] = []
        for at in range(start, start + length):  # past the row's end it is the draft that repeats
            drafted.append(tokens[at] if at < len(tokens) else drafted[at - len(tokens)])
        return drafted


@dataclass
class _Index:
    """Where what followed n tokens stands, the last time: of the first ``known`` tokens of a row."""

    follows: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    known: int = 0


@dataclass
class _Reading:
    """What a drafting model has read of a row."""

    cache: Any
    tokens: list[int] = field(default_factory=list[int])


class ModelDrafter:
    """Drafts with a smaller model of the same vocabulary, which reads each row beside the large one."""

    chunk = 512  # unread tokens of a row at a time; until it has caught up, it drafts nothing for it

    def __init__(self, runner: Runner, vocab_size: int) -> None:
        self.runner, self.vocab_size = runner, vocab_size
        self._readings: WeakKeyDictionary[Row, _Reading] = WeakKeyDictionary()

    def draft(self, rows: Sequence[Row], lengths: Sequence[int]) -> list[Draft]:
        """See ``Drafter``. Greedy rows get the likeliest tokens, the others tokens drawn at their own settings."""
        tokens: list[list[int]] = [[] for _ in rows]
        probabilities: list[list[Tensor]] = [[] for _ in rows]
        wanted = [min(length, self._room(row)) for row, length in zip(rows, lengths, strict=True)]
        try:
            while going := [place for place, n in enumerate(wanted) if len(tokens[place]) < n]:
                reads = [self._read(rows[place], tokens[place]) for place in going]
                for place, read, logits in zip(going, reads, self.runner.advance(reads), strict=True):
                    reading = self._readings[rows[place]]
                    reading.tokens += read.tokens
                    if len(reading.tokens) < len(rows[place].line.tokens):
                        wanted[place] = 0  # not caught up
                        continue
                    token, share = self._guess(rows[place], logits)
                    tokens[place].append(token)
                    probabilities[place] += [] if share is None else [share]
        except BaseException:
            for row in rows:  # what their caches hold is uncertain now
                self._readings.pop(row, None)
            raise
        return [Draft(t, torch.stack(p) if p else None) for t, p in zip(tokens, probabilities, strict=True)]

    def _room(self, row: Row) -> int:
        """Tokens that the draft's positions have room for behind the row, the last of which need not be read."""
        longest = self.runner.architecture.max_length
        return LONGEST if longest is None else max(0, longest - len(row.line.tokens) + 1)

    def _read(self, row: Row, drafted: list[int]) -> Read:
        if drafted:
            return Read(tokens=drafted[-1:], cache=self._readings[row].cache)
        reading, tokens = self._readings.get(row), row.line.tokens
        if reading is not None:
            known = min(common(reading.tokens, tokens), len(tokens) - 1)
            if known < len(reading.tokens):
                try:
                    reading.cache.truncate(known)
                    del reading.tokens[known:]
                except ValueError:  # a cache that slides cannot go back: read the row again
                    reading = None
        if reading is None:
            total = len(row.request.tokens) + row.line.limit
            reading = self._readings[row] = _Reading(self.runner.cache(1, total_lengths=[total]))
        known = len(reading.tokens)
        new = tokens[known : known + self.chunk]
        return Read(
            tokens=new,
            cache=reading.cache,
            source=row.request.source if known == 0 else None,
            positions=row.request.places(known, known + len(new)),
        )

    def _guess(self, row: Row, logits: Tensor) -> tuple[int, Tensor | None]:
        logits = at_least_float32(logits[-1:, : self.vocab_size])
        if row.settings.greedy:
            return int(likeliest(logits)), None
        log_probabilities = narrow(logits, row.settings)
        token = int(draw(log_probabilities, [row.generator]))
        missing = self.vocab_size - logits.shape[-1]  # a table that is padded less
        return token, torch.nn.functional.pad(log_probabilities[0].exp(), (0, missing))
