"""Corpus: what memories are looked for in: a text's tokens cut into rows, or pairs of texts for encoder and decoder.

The tokens are in the user's cache, mapped, so a corpus of any length takes little memory. A place is a token's number
in the lane of its tower.

Legend: b rows, n places of a row, k places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.checkpoint import Checkpoint
from plait.data.kept import kept
from plait.data.lines import Tally
from plait.data.pairs import encode_pairs, read_pairs
from plait.data.rows import Ids, Ragged, padded
from plait.data.store import tokenised
from plait.generation.settings import start_id
from plait.inspection.errors import InspectionError
from plait.model import Transformer
from plait.text import Tokenizer

LENGTH = 256  # of a row, at most
WINDOW = 1024  # rows that are sorted by length, so that those of a batch are alike
BLOCK = 1 << 20  # tokens that are looked up at once


@dataclass(frozen=True, kw_only=True, eq=False)
class Lane:
    """What one tower reads: ``rows`` of the tokens of ``documents``, with ``before`` and ``after`` around each.

    ``following``: what is asked of a place is the token after it, as of a decoder; otherwise its own. Where ``alone``,
    the first token of a row sees nothing, and its place does not count.
    """

    rows: Ragged
    documents: Ragged
    tokenizer: Tokenizer
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    following: bool = False
    alone: bool = False

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every row, with those around it."""
        return self.rows.lengths + len(self.before) + len(self.after)

    @property
    def counted(self) -> NDArray[np.int64]:
        """How many places of every row count."""
        return self.rows.lengths - (self.alone and not self.before)

    def row(self, number: int) -> tuple[Ids, NDArray[np.int64]]:
        """The ids of a row and their places, -1 for those that do not count, ``(n,)`` each."""
        begin, end = int(self.rows.begins[number]), int(self.rows.ends[number])
        places = np.arange(begin, end)
        if self.alone and not self.before:
            places[:1] = -1
        around = [np.array(ids, np.int64) for ids in (self.before, self.after)]
        ids = np.concatenate([around[0], self.rows.read(begin, end), around[1]])
        return ids, np.concatenate([np.full_like(around[0], -1), places, np.full_like(around[1], -1)])

    def context(self, place: int, before: int) -> Ids:
        """The tokens up to a place, itself the last, ``before`` of them before it, within its row; none for -1."""
        if place < 0:
            return np.empty(0, np.int64)
        row = int(np.searchsorted(self.rows.begins, place, "right")) - 1
        return self.rows.read(max(int(self.rows.begins[row]), place - before), place + 1)

    def tokens(self, places: Tensor) -> Tensor:
        """The tokens at places of any shape; -1 at those that are none."""
        flat = places.flatten()
        order = flat.argsort()
        order = order[int((flat < 0).sum()) :]
        asked = flat[order].numpy()
        found = torch.full_like(flat, -1)
        start = 0
        while start < len(asked):
            base = int(asked[start])
            stop = int(np.searchsorted(asked, base + BLOCK))
            read = self.rows.read(base, int(asked[stop - 1]) + 1).astype(np.int64)
            found[order[start:stop]] = torch.from_numpy(read[asked[start:stop] - base])
            start = stop
        return found.view_as(places)

    def targets(self, places: Tensor) -> Tensor:
        """What is asked at places of any shape: the token after each, or its own; -1 where there is none."""
        if not self.following:
            return self.tokens(places)
        ends = torch.from_numpy(np.ascontiguousarray(self.documents.ends))
        end = ends[torch.searchsorted(ends, places.clamp(min=0), right=True)]
        return self.tokens(torch.where((places >= 0) & (places + 1 < end), places + 1, -1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Rows for one pass: ``ids`` and which are ``real``, ``(b, n)`` by tower; ``places`` ``(b, n)``, -1 for those that
    do not count."""

    ids: Mapping[str, Tensor]
    real: Mapping[str, Tensor | None]
    places: Mapping[str, Tensor]

    @property
    def n_tokens(self) -> int:
        """Of all towers, without padding."""
        return sum(self.ids[tower].numel() if real is None else int(real.sum()) for tower, real in self.real.items())

    def run(self, model: Transformer) -> None:
        """Let a model read them; its encoder alone where there is nothing for its decoder."""
        device = next(model.parameters()).device
        ids = {tower: value.to(device) for tower, value in self.ids.items()}
        real = {tower: None if value is None else value.to(device) for tower, value in self.real.items()}
        if len(ids) == 2:
            model(ids["decoder"], mask=real["decoder"], source=ids["encoder"], source_mask=real["encoder"])
        elif "decoder" in ids:
            model(ids["decoder"], mask=real["decoder"])
        else:
            model.encode(ids["encoder"], real["encoder"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Lanes by tower, with as many rows each, which belong together; ``counts`` say what was left out."""

    lanes: Mapping[str, Lane]
    counts: Mapping[str, int | float]

    def __len__(self) -> int:
        return len(next(iter(self.lanes.values())).rows)

    @property
    def n_tokens(self) -> int:
        """That are read, in all lanes, with those around rows."""
        return sum(int(lane.lengths.sum()) for lane in self.lanes.values())

    def batches(self, tokens: int, rows: Sequence[int] | NDArray[np.int64] | None = None) -> Iterator[Batch]:
        """All rows, or those given, each once, in batches of at most so many tokens where rows are no longer."""
        numbers = np.arange(len(self)) if rows is None else np.asarray(rows, np.int64)
        longest = np.max([lane.lengths for lane in self.lanes.values()], axis=0)
        for start in range(0, len(numbers), WINDOW):
            window = numbers[start : start + WINDOW]
            window = window[np.argsort(-longest[window], kind="stable")]
            while len(window):
                fitting = max(1, tokens // max(1, int(longest[window[0]])))
                yield self._batch(window[:fitting])
                window = window[fitting:]

    def _batch(self, numbers: Iterable[int]) -> Batch:
        ids, real, places = dict[str, Tensor](), dict[str, Tensor | None](), dict[str, Tensor]()
        for tower, lane in self.lanes.items():
            rows = [lane.row(int(number)) for number in numbers]
            ids[tower], whole = padded([row for row, _ in rows], 0)
            real[tower] = None if bool(whole.all()) else whole
            places[tower] = padded([place for _, place in rows], -1)[0]
        return Batch(ids=ids, real=real, places=places)


def text_corpus(
    checkpoint: Checkpoint, files: Sequence[str | Path], *, length: int = LENGTH, cache: str | Path | None = None
) -> Corpus:
    """Texts for a model of one tower, or for the encoder of two, which reads them line by line.

    Args:
        files: files and folders; see ``plait.data.sources``.
        length: tokens of a row, at most.
        cache: the folder of tokens, instead of the user's.

    Raises ``InspectionError`` without a tokenizer, and DataError for what cannot be read.
    """
    a, tokenizer = checkpoint.architecture, _tokenizer(checkpoint)
    tower = "decoder" if a.kind == "decoder" else "encoder"
    each = "line" if a.kind == "encoder-decoder" else "file"
    tokens = tokenised(files, tokenizer, each=each, before=(), after=(), cache=cache)
    documents = Ragged.documents(tokens)
    around = len(tokenizer.prefix) + len(tokenizer.suffix)
    rows = documents.pieces(_length(checkpoint, length, around + 1) - around)
    causal = tower == "decoder"
    lane = Lane(
        rows=rows,
        documents=documents,
        tokenizer=tokenizer,
        before=tokenizer.prefix,
        after=tokenizer.suffix,
        following=causal,
        alone=causal,
    )
    return Corpus(lanes={tower: lane}, counts=tokens.counts)


def pair_corpus(
    checkpoint: Checkpoint, files: Sequence[str | Path], *, length: int = LENGTH, cache: str | Path | None = None
) -> Corpus:
    """Pairs of a source and a target for an encoder and its decoder; arguments as for ``text_corpus``.

    Args:
        files: two that go line by line, or .tsv and .jsonl; see ``plait.data.pairs``.

    Raises ``InspectionError`` for other kinds of model, without a tokenizer, or an end of targets; DataError for what
    cannot be read.
    """
    a, rules, tokenizer = checkpoint.architecture, checkpoint.rules, _tokenizer(checkpoint)
    if a.kind != "encoder-decoder":
        raise InspectionError(f"corpus: pairs are for an encoder and a decoder; this {a.kind} reads text.")
    if not rules.end:
        raise InspectionError(
            "corpus: the checkpoint does not say which token ends its decoder's texts; set rules.end."
        )
    writer = tokenizer.target or tokenizer
    forced = writer.prefix if rules.forced_first is None else (rules.forced_first,)
    start, around = (start_id(rules, a.vocab_size), *forced), (*tokenizer.prefix, *tokenizer.suffix)
    longest = _length(checkpoint, length, len(start) + len(around) + 2) - len(around)

    def source(texts: Sequence[str]) -> list[list[int]]:
        return tokenizer.encode_batch(texts, False, control=False)

    def target(texts: Sequence[str]) -> list[list[int]]:
        return [[*start, *ids, rules.end[0]] for ids in writer.encode_batch(texts, False, control=False)]

    def make(tally: Tally) -> Iterator[list[Sequence[int]]]:
        pairs = read_pairs(files, tally)
        return encode_pairs(pairs, tally, source=source, target=target, length=longest, longest="cut")

    settings = ["memories", longest, *start, rules.end[0]]
    (sources, targets), tally = kept(list(files), tokenizer, make, settings=settings, cache=cache)
    lanes = {
        "encoder": Lane(
            rows=sources, documents=sources, tokenizer=tokenizer, before=tokenizer.prefix, after=tokenizer.suffix
        ),
        # the end is asked, and never read
        "decoder": Lane(
            rows=Ragged(targets.read, targets.begins, targets.ends - 1),
            documents=targets,
            tokenizer=writer,
            following=True,
        ),
    }
    return Corpus(lanes=lanes, counts=tally.facts())


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    if checkpoint.tokenizer is None:
        raise InspectionError("corpus: the checkpoint has no tokenizer to read text with; give one that has.")
    return checkpoint.tokenizer


def _length(checkpoint: Checkpoint, length: int, least: int) -> int:
    """Tokens of a row, with all that is around it."""
    longest = checkpoint.architecture.max_length
    if length < least:
        raise InspectionError(f"length: rows of {length} tokens hold no text; give {least} or more.")
    return length if longest is None else min(length, longest)
