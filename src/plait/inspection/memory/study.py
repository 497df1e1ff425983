"""Study: all of a model's memories over a corpus: every neuron's triggers and value, and every layer's numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from plait.checkpoint import Checkpoint
from plait.data.error import DataError
from plait.data.progress import counted
from plait.inspection.errors import InspectionError
from plait.inspection.memory.agreement import Agreement, Neurons, agreement, neurons
from plait.inspection.memory.composition import Composition, composition, sampled
from plait.inspection.memory.corpus import LENGTH, Corpus, pair_corpus, text_corpus
from plait.inspection.memory.networks import values
from plait.inspection.memory.reading import Reader, read_by_head, slope
from plait.inspection.memory.survey import Found, Triggers, batch_tokens, survey
from plait.inspection.memory.visits import stacks
from plait.inspection.quick import quick
from plait.model import Transformer, watching


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A layer, by its turn: its ``networks`` (one, or the experts and what all tokens take), and its numbers."""

    tower: str
    turn: int
    networks: Sequence[Neurons]
    agreement: Agreement
    composition: Composition

    @property
    def n_neurons(self) -> int:
        """Of all its networks."""
        return sum(map(len, self.networks))


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """``layers`` in the order in which they run; ``readers`` say by tower how values were read."""

    corpus: Corpus
    keep: int
    readers: Mapping[str, Reader]
    layers: Sequence[Layer]


def study(
    checkpoint: Checkpoint,
    files: Sequence[str | Path],
    *,
    tower: str | None = None,
    layers: Collection[int] | None = None,
    keep: int = 10,
    tokens: int = 10,
    length: int = LENGTH,
    cache: str | Path | None = None,
) -> Study:
    """Read a corpus and look at every neuron; a terminal is shown how far it is.

    Args:
        files: text; for an encoder and a decoder together pairs, see ``pair_corpus``.
        tower: of an encoder-decoder the ``encoder`` alone, which reads text, or the ``decoder``, which reads pairs;
            none: both, over pairs.
        layers: some of them; none: all.
        keep: triggers of each neuron.
        tokens: of each value.
        length: of a row.
        cache: the folder of tokens, instead of the user's.

    Raises ``InspectionError`` and DataError for what makes no sense, in words.
    """
    if keep < 1 or tokens < 1:
        raise InspectionError(f"keep: {min(keep, tokens)} makes no sense; give 1 or more.")
    corpus = _corpus(checkpoint, files, tower, length, cache)
    if not sampled(corpus):
        raise InspectionError("corpus: it has no text of more than one token, and the first sees nothing before it.")
    model, towers = checkpoint.model.eval(), [tower] if tower is not None else list(corpus.lanes)
    turns = _turns(checkpoint, towers, layers)
    names, found = [f"{tower}.layers.{turn}" for tower, turn in turns], Found()
    with quick(model), counted("reading the corpus", corpus.n_tokens) as advance:
        for n, triggers in survey(checkpoint, corpus, keep=keep, layers=names):
            advance(n)
            found = triggers
    readers, known = {tower: _reader(model, tower, corpus) for tower in towers}, dict[str, list[Neurons]]()
    with counted("reading values", len(turns)) as advance:
        for name, (tower, turn) in zip(names, turns, strict=True):
            reader, lane = readers[tower], corpus.lanes[tower]
            known[name] = [
                neurons(reader, lane, turn, own, value, found.get(own) or Triggers.none(len(value), keep), tokens)
                for own, value in values(reader.stack.blocks[turn].ffn, f"{name}.ffn")
            ]
            advance(1)
    composed: dict[str, Composition] = {}
    with quick(model), counted("comparing what they say", len(sampled(corpus))) as advance:
        for n, shares in composition(checkpoint, corpus, readers, known):
            advance(n)
            composed = shares
    made = [
        Layer(
            tower=tower,
            turn=turn,
            networks=known[name],
            agreement=agreement(known[name]),
            composition=composed[name],
        )
        for name, (tower, turn) in zip(names, turns, strict=True)
    ]
    return Study(corpus=corpus, keep=keep, readers=readers, layers=made)


def _corpus(
    checkpoint: Checkpoint, files: Sequence[str | Path], tower: str | None, length: int, cache: str | Path | None
) -> Corpus:
    kind = checkpoint.architecture.kind
    if kind != "encoder-decoder":
        if tower not in (None, kind):
            raise InspectionError(f"tower: {tower}, and this model has only its {kind}.")
        return text_corpus(checkpoint, files, length=length, cache=cache)
    if tower == "encoder":
        return text_corpus(checkpoint, files, length=length, cache=cache)
    try:
        return pair_corpus(checkpoint, files, length=length, cache=cache)
    except DataError as error:
        raise InspectionError(
            f"{error} A decoder beside an encoder reads pairs: two files that go line by line, .tsv or .jsonl. Text "
            "alone is for the encoder: ask for that tower."
        ) from None


def _turns(checkpoint: Checkpoint, towers: Sequence[str], layers: Collection[int] | None) -> list[tuple[str, int]]:
    counts = {tower: len(stacks(checkpoint.model)[tower].blocks) for tower in towers}
    for layer in layers or ():
        if not 0 <= layer < max(counts.values()):
            raise InspectionError(f"layers: {layer}, and there are layers 0 to {max(counts.values()) - 1}.")
    return [(tower, turn) for tower, n in counts.items() for turn in range(n) if layers is None or turn in layers]


def _reader(model: Transformer, tower: str, corpus: Corpus) -> Reader:
    head = model.head
    if head is None or head.act is None or not read_by_head(model, tower):
        return Reader.of(model, tower)
    batch = next(corpus.batches(batch_tokens(model, corpus), sampled(corpus)))
    site = f"{tower}.output"
    with torch.no_grad(), watching(model, site, stop_after=site) as seen:
        batch.run(model)
    return Reader.of(model, tower, slope(head, seen[site][(batch.places[tower] >= 0).to(seen[site].device)]))
