"""Translate: lines in, as many lines out, in their order, whatever their length and however they are batched.

lines -> a window of them -> parts that fit -> batches by tokens, sorted by length -> joined parts, in order
  blank -> blank, without asking the model
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import torch

from plait.checkpoint.notice import notice
from plait.generation.alignment import cross_attention, pairs
from plait.generation.beam import Found, beam_search
from plait.generation.decode import decode
from plait.generation.errors import GenerationError, in_words
from plait.generation.languages import between
from plait.generation.limits import check_limits, new_tokens
from plait.generation.records import Piece
from plait.generation.row import Request
from plait.generation.runner import ModelRunner, Runner, check_runner
from plait.generation.search import Search, settle_search
from plait.generation.sentences import fit, is_blank, sentences
from plait.generation.settings import settle, start_id
from plait.generation.translation import Part, Translation, aligned, assemble
from plait.words import nearest

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint
    from plait.generation.search import EarlyStopping


class TranslateOptions(TypedDict, total=False):
    """``None``, or left out: the checkpoint's decode rules decide, where they know the option."""

    source_language: str | None  # codes as the vocabulary spells them: NLLB's "fra_Latn", mBART's "fr_XX", M2M's "fr";
    target_language: str | None  # of a Marian with several targets "fra", for its >>fra<<
    template: str  # what a line is put into, in place of {}: "translate English to German: {}" for T5
    beams: int | None  # continuations that a beam search keeps; 1 is greedy
    n_best: int | None  # so many candidates of each line
    length_penalty: float | None  # log-probability / length ** this ranks beams
    early_stopping: EarlyStopping | None  # when a search is done: True, False or "never"
    max_new_tokens: int | None  # of a part; without a rule twice the source's and 50
    split: Literal["long", "sentences"]  # cut lines that are too long, or every line behind its sentences
    longest: int | None  # tokens of a part, the end counted; None: as many as there are positions for
    batch_tokens: int  # source tokens of a batch, padding counted; 2048 unless given
    window: int  # lines read ahead, and sorted into batches; 1 answers each at once; 1024 unless given
    alignments: bool  # which source token each token written goes with, by the plain model's cross-attention
    runner: Runner | None  # who computes; None: the engine


def translate(
    checkpoint: Checkpoint, text: str | Sequence[str], **options: Unpack[TranslateOptions]
) -> Translation | list[Translation]:
    """Translate a line, or each of a list of lines: the same as one at a time.

    Returns a ``Translation``, or one for each line of the list. Options are those of ``TranslateOptions``;
    ``GenerationError`` (a ``ValueError``) names what does not fit, before any work. Notices (``PlaitNotice``) name the
    lines that were cut into parts, came out cut off, or lost sentences.
    """
    single = isinstance(text, str)
    found = list(translate_lines(checkpoint, [text] if single else text, **options))
    return found[0] if single else found


def translate_lines(
    checkpoint: Checkpoint, lines: Iterable[str], **options: Unpack[TranslateOptions]
) -> Iterator[Translation]:
    """``translate`` for any number of lines, read a window at a time, each translation in its line's place. What does
    not fit is refused at the call."""
    for name in options:
        if name not in TranslateOptions.__annotations__:
            near = nearest(name, TranslateOptions.__annotations__)
            raise TypeError(f"{name}: there is no such option" + (f"; did you mean {near!r}?" if near else "."))
    return _Translator(checkpoint, dict(options)).windows(lines)


class _Translator:
    """What was asked for, settled."""

    def __init__(self, checkpoint: Checkpoint, wishes: dict[str, Any]) -> None:
        given: Runner | None = wishes.pop("runner", None)
        if given is not None:
            check_runner(given, checkpoint.architecture)
        a = checkpoint.architecture
        if a.head != "language":
            raise GenerationError(
                f"translate: this {in_words(a)} writes no text; give an encoder-decoder, or a decoder."
            )
        if checkpoint.tokenizer is None:
            raise GenerationError("translate: the checkpoint has no tokenizer to read text with; load one that has.")
        self.alignments: bool = wishes.pop("alignments", False)
        if self.alignments and a.kind != "encoder-decoder":
            raise GenerationError(f"alignments: a {a.kind} has no cross-attention to read them from; leave it out.")
        self.architecture, self.checkpoint = a, checkpoint
        self.tokenizer, self.rules, code = between(
            checkpoint.tokenizer,
            checkpoint.rules,
            wishes.pop("source_language", None),
            wishes.pop("target_language", None),
        )
        self.writer = self.tokenizer if self.tokenizer.target is None else self.tokenizer.target
        template = wishes.pop("template", "{}")
        if not isinstance(template, str) or template.count("{}") != 1:
            raise GenerationError(f"template: {template!r} must have one place, written {{}}, for the line.")
        before, _, self.after = template.partition("{}")
        self.before = code + before
        self.control = any(string in template for string in self.tokenizer.segmenter.control)
        self.split = wishes.pop("split", "long")
        if self.split not in ("long", "sentences"):
            raise GenerationError(f"split: {self.split!r} is neither 'long' nor 'sentences'.")
        self.max_new_tokens = wishes.pop("max_new_tokens", None)
        check_limits(self.max_new_tokens, None)
        self.batch_tokens = _whole("batch_tokens", wishes.pop("batch_tokens", 2048))
        self.window = _whole("window", wishes.pop("window", 1024))
        self.longest = self._longest(wishes.pop("longest", None))
        self.n_best = wishes.get("n_best") is not None
        self.search: Search | None = settle_search(self.rules, wishes)
        stop = "\n" if a.kind == "decoder" else ()
        self.settings = settle(self.rules, self.writer, a.vocab_size, stop=stop, temperature=0.0)
        self.start = [start_id(self.rules, a.vocab_size)] if a.kind == "encoder-decoder" else []
        self.runner = _runner(checkpoint) if given is None else given

    def _longest(self, asked: int | None) -> int | None:
        context = self.architecture.max_length
        if context is not None and self.architecture.kind == "decoder":
            context //= 2  # the other half is for the translation
        if asked is not None:
            _whole("longest", asked)
            if context is not None and asked > context:
                raise GenerationError(f"longest: {asked} tokens are more than the {context} there is room for.")
        return context if asked is None else asked

    def windows(self, lines: Iterable[str]) -> Iterator[Translation]:
        """All lines, a window at a time."""
        source = iter(lines)
        first = 1
        while window := list(islice(source, self.window)):
            yield from self._window(window, first)
            first += len(window)

    def _window(self, lines: Sequence[str], first: int) -> list[Translation]:
        cut = [self._parts(line) for line in lines]
        _say(
            first,
            [i for i, parts in enumerate(cut) if len(parts) > 1 and self.split == "long"],
            _TOO_LONG,
            self.longest,
        )
        parts = sorted((part for own in cut for part in own), key=lambda part: -len(part.tokens))
        for batch in self._batches(parts):
            self._fill(batch)
        done = [assemble(own, candidates=self.n_best) for own in cut]
        if self.alignments:
            done = [aligned(one, own, self.tokenizer, self.writer) for one, own in zip(done, cut, strict=True)]
        _say(first, [i for i, one in enumerate(done) if one.finish == "length"], _CUT_OFF)
        if self.split == "long":
            lost = [i for i, (line, one) in enumerate(zip(lines, done, strict=True)) if _shrank(line, one.text)]
            _say(first, lost, _SHRANK)
        return done

    def _parts(self, line: str) -> list[Part]:
        """A line as what is read of it; a blank one is nothing."""
        if not isinstance(line, str):
            raise GenerationError(f"translate: a line is a text, and this is {type(line).__name__}.")
        whole = sentences(line) if self.split == "sentences" else [line]
        longest = self.longest
        texts = whole if longest is None else [part for text in whole for part in fit(text, self._length, longest)]
        return [Part(text, self._read(text)) for text in texts if not is_blank(text)]

    def _read(self, text: str) -> list[int]:
        """The ids of a part as the model reads it: space around it is none of it, and control strings are text, unless
        the template has some."""
        return self.tokenizer.encode(f"{self.before}{text.strip()}{self.after}", control=self.control)

    def _length(self, text: str) -> int:
        return len(self._read(text))

    def _batches(self, parts: Sequence[Part]) -> Iterator[list[Part]]:
        """Neighbours, as many as the budget holds, the longest first."""
        at = 0
        while at < len(parts):
            rows = max(1, self.batch_tokens // max(1, len(parts[at].tokens)))
            yield list(parts[at : at + rows])
            at += rows

    def _fill(self, parts: Sequence[Part]) -> None:
        """Translate a batch."""
        requests = [self._request(part) for part in parts]
        if self.search is None:
            pieces: list[list[Piece]] = [[] for _ in parts]
            for row, piece in decode(self.runner, requests, tokenizer=self.writer, preallocate=False):
                pieces[row].append(piece)
            for part, own in zip(parts, pieces, strict=True):
                part.found = [Found(None, own)]
        else:
            for row, best in beam_search(self.runner, requests, self.search, tokenizer=self.writer, preallocate=False):
                parts[row].found = best
        if self.alignments:
            self._align(parts)

    def _request(self, part: Part) -> Request:
        a = self.architecture
        own = part.tokens if a.kind == "decoder" else self.start
        limit = new_tokens(len(own), self.rules, a.max_length, max_new_tokens=self.max_new_tokens)
        if self.max_new_tokens is None and self.rules.max_new_tokens is None and self.rules.max_length is None:
            limit = min(limit, 2 * len(part.tokens) + 50)
        source = None if a.kind == "decoder" else part.tokens
        return Request(tokens=own, source=source, limit=limit, settings=self.settings)

    def _align(self, parts: Sequence[Part]) -> None:
        rows = [[*self.start, *part.written] for part in parts]
        attention = cross_attention(self.checkpoint.model, [part.tokens for part in parts], rows)
        ahead = len(self.tokenizer.encode(self.before.rstrip(), specials=False)) if self.before else 0
        behind = len(self.tokenizer.encode(self.after, specials=False)) if self.after else 0
        for part, own in zip(parts, attention, strict=True):
            source = [i for i, id in enumerate(part.tokens) if id not in self.tokenizer.special_ids]
            source = source[ahead : len(source) - behind]
            target = [
                j for j, id in enumerate(part.written) if id not in self.writer.special_ids and id < len(self.writer)
            ]
            part.places, part.alignment = (source, target), pairs(own, source, target)


_TOO_LONG = "too long for the {} tokens that are read at once: cut into parts, which are translated one by one."
_CUT_OFF = (
    "the translation reached its limit of tokens and is cut off there; allow more: max_new_tokens, --max-new-tokens."
)
_SHRANK = "fewer sentences came out than went in; split='sentences' (--split sentences) translates each by itself."


def _say(first: int, lines: Sequence[int], what: str, *values: object) -> None:
    """One notice for all lines of a window that something happened to."""
    if lines:
        shown = ", ".join(str(first + line) for line in lines[:8])
        more = f" and {len(lines) - 8} more" if len(lines) > 8 else ""
        notice(f"line{'s' if len(lines) > 1 else ''} {shown}{more}: {what.format(*values)}")


def _shrank(line: str, text: str) -> bool:
    """Whether a model that was trained on sentences answered the first ones only: of several fewer than half."""
    went = len(sentences(line.strip()))
    return went > 1 and 2 * len(sentences(text)) < went + (went == 2)


def _runner(checkpoint: Checkpoint) -> Runner:
    """The engine, where it computes in the model's type."""
    weight = next(checkpoint.model.parameters())
    if weight.device.type in ("cpu", "cuda", "meta") and weight.dtype in (torch.float32, torch.bfloat16):
        from plait.engine import optimize

        device = "cpu" if weight.is_meta else weight.device
        return optimize(checkpoint, device=device)
    return ModelRunner(checkpoint.model)


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise GenerationError(f"{name}: {value!r} makes no sense; give a whole number from 1.")
    return value
