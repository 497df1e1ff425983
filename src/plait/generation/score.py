"""Score: how likely a model finds texts that are there already, token by token and in sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from plait.generation.decode import prefill
from plait.generation.errors import GenerationError, in_words
from plait.generation.prefixes import common
from plait.generation.prompts import read_prompts
from plait.generation.row import Request, Score
from plait.generation.runner import ModelRunner, Runner, check_runner
from plait.generation.sampling import check_numbers
from plait.generation.settings import start_id

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint

CHUNK = 256  # tokens of each row whose logits are held at once


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One text: its ``tokens`` and the natural logarithm of each one's probability, given all that stands before it.

    The first of a decoder's text has ``None`` where nothing stands before it, neither a BOS token nor ``given``; it is
    part of no sum. ``n_bytes`` are those of the text that the others spell, ``None`` without a tokenizer. Means are
    ``None`` where there is nothing to divide by.
    """

    tokens: list[int]
    logprobs: list[float | None]
    n_bytes: int | None = None

    @property
    def n_scored(self) -> int:
        """Tokens that have a log-probability."""
        return sum(value is not None for value in self.logprobs)

    @property
    def logprob(self) -> float:
        """Of the text: the sum."""
        return math.fsum(value for value in self.logprobs if value is not None)

    @property
    def mean(self) -> float | None:
        """Log-probability per token."""
        return self.logprob / self.n_scored if self.n_scored else None

    @property
    def perplexity(self) -> float | None:
        """e ** -mean: among how many equally likely tokens each was chosen."""
        return None if self.mean is None else math.exp(min(-self.mean, 700.0))

    @property
    def bits_per_byte(self) -> float | None:
        """-log2 of the text's probability per byte; what models with different tokenizers can be compared by."""
        return -self.logprob / math.log(2) / self.n_bytes if self.n_bytes else None


@torch.inference_mode()
def score(
    checkpoint: Checkpoint,
    texts: Any,
    *,
    given: Any = None,
    specials: bool = True,
    batch_size: int = 8,
    runner: Runner | None = None,
) -> Scored | list[Scored]:
    """The log-probability of a text, or of each of a list of texts: the same as one at a time.

    ``texts``: a text or token ids, or a list of those; of an encoder-decoder they are targets. ``given``: what stands
    before each, as many as texts, and is not scored: the sources of an encoder-decoder, which needs them, or the
    beginnings that a decoder's texts go on from. ``specials``: whether the tokenizer adds its special tokens. Where the
    checkpoint's rules ban tokens and renormalize what is left, so are likelihoods here.
    ``GenerationError`` (a ``ValueError``), before any work, for what cannot be read or is longer than the context.
    """
    if runner is not None:
        check_runner(runner, checkpoint.architecture)
    used: Runner = ModelRunner(checkpoint.model) if runner is None else runner
    a = used.architecture
    if a.kind == "encoder" or a.head != "language":
        raise GenerationError(f"score: this {in_words(a)} gives no text a probability; see plait.fill.")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise GenerationError(f"batch_size: {batch_size!r} makes no sense; give a whole number from 1.")
    read = _read_targets if a.kind == "encoder-decoder" else _read_texts
    lines, single = read(checkpoint, texts, given, specials)
    for index, line in enumerate(lines):
        for name, n in (("text", len(line.tokens)), ("source", len(line.source or ()))):
            if a.max_length is not None and n > a.max_length:
                raise GenerationError(f"{name} {index}: its {n} tokens exceed the context of {a.max_length}; cut it.")
    rules = checkpoint.rules  # of a distribution over some tokens alone the others are no part
    never = [banned[0] for banned in rules.banned if len(banned) == 1] if rules.renormalize else []
    done: list[tuple[int, Scored]] = []
    by_length = sorted(range(len(lines)), key=lambda i: len(lines[i].tokens), reverse=True)  # batches hardly padded
    for start in range(0, len(lines), batch_size):
        places = by_length[start : start + batch_size]
        batch = [Request(tokens=lines[i].tokens, source=lines[i].source, limit=1, echo=True) for i in places]
        cache = used.cache(len(batch), total_lengths=[len(request.tokens) for request in batch])
        _, scores = prefill(used, cache, batch, CHUNK, 0, never)
        check_numbers(torch.tensor([value for of_row in scores for value, _ in of_row]))
        done += [(i, _scored(lines[i], of_row, checkpoint)) for i, of_row in zip(places, scores, strict=True)]
    found = [one for _, one in sorted(done, key=lambda pair: pair[0])]
    return found[0] if single else found


class _Line(NamedTuple):
    """What a decoder reads for one text, which begins at ``first``."""

    text: Any  # as it was given
    tokens: list[int]
    first: int = 0
    source: list[int] | None = None


def _read_texts(checkpoint: Checkpoint, texts: Any, given: Any, specials: bool) -> tuple[list[_Line], bool]:
    """Texts of a decoder, each behind what is given."""
    tokenizer, vocab_size = checkpoint.tokenizer, checkpoint.architecture.vocab_size

    def read(text: Any, specials: bool = specials) -> tuple[list[list[int]], bool]:
        bos = None if tokenizer is None else tokenizer.bos
        return read_prompts(text, tokenizer, specials=specials, vocab_size=vocab_size, bos=bos)

    rows, single = read(texts)
    whole = [texts] if single else list(texts)
    if given is None:
        return [_Line(text, row) for text, row in zip(whole, rows, strict=True)], single
    before = _paired(given, *read(given), len(rows), single)
    lines: list[_Line] = []
    for text, (start, tokens) in zip(whole, before, strict=True):
        if isinstance(text, str) and isinstance(start, str):  # cut as one text: words may run over the seam
            joined = read([start + text])[0][0]
            first = common(tokens, joined)
        else:
            joined, first = tokens + read([text], False)[0][0], len(tokens)
        lines.append(_Line(text, joined, first))
    return lines, single


def _read_targets(checkpoint: Checkpoint, texts: Any, given: Any, specials: bool) -> tuple[list[_Line], bool]:
    """Targets of an encoder-decoder, each behind its start token and with its source."""
    a, tokenizer = checkpoint.architecture, checkpoint.tokenizer
    writer = tokenizer if tokenizer is None or tokenizer.target is None else tokenizer.target
    bos = checkpoint.rules.bos
    rows, single = read_prompts(texts, writer, specials=specials, vocab_size=a.vocab_size, bos=bos)
    if given is None:
        raise GenerationError("given: an encoder-decoder scores targets of sources; give a source for each text.")
    sources = read_prompts(given, tokenizer, specials=specials, vocab_size=a.source_vocab_size, bos=bos)
    start = [start_id(checkpoint.rules, a.vocab_size)]
    whole = [texts] if single else list(texts)
    pairs = zip(whole, rows, _paired(given, *sources, len(rows), single), strict=True)
    return [_Line(text, [*start, *row], 1, source) for text, row, (_, source) in pairs], single


def _paired(given: Any, rows: list[list[int]], alone: bool, n: int, single: bool) -> list[tuple[Any, list[int]]]:
    """What stands before each of ``n`` texts: as it was given, and its ids."""
    if (len(rows), alone) != (n, single):
        raise GenerationError(f"given: {len(rows)} for {n} {'text' if n == 1 else 'texts'}; give one for each.")
    return list(zip([given] if alone else given, rows, strict=True))


def _scored(line: _Line, scores: list[Score], checkpoint: Checkpoint) -> Scored:
    tokens = line.tokens[line.first :]
    logprobs = [None, *(value for value, _ in scores)][line.first :]
    tokenizer = checkpoint.tokenizer
    if tokenizer is None:
        return Scored(tokens=tokens, logprobs=logprobs)
    tokenizer = tokenizer if tokenizer.target is None else tokenizer.target
    text = line.text if isinstance(line.text, str) else tokenizer.decode(tokens, skip_specials=True, continues=True)
    unscored = tokenizer.decode(tokens[:1], skip_specials=True) if logprobs[:1] == [None] else ""
    return Scored(tokens=tokens, logprobs=logprobs, n_bytes=len(text.encode()) - len(unscored.encode()))
