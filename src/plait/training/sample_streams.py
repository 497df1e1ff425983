"""Streams of samples: pairs, chats, labelled sentences, each made into ids once and mapped from the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from plait.data.chat import chat_rows
from plait.data.chats import Messages, asked_first, read_chats
from plait.data.contrastive import Contrastive
from plait.data.given import Given
from plait.data.held_out import held_out
from plait.data.kept import kept
from plait.data.labelled import Sample, read_labelled
from plait.data.labels import Labels, label_rows
from plait.data.lines import Tally
from plait.data.longest import Longest
from plait.data.paired import Paired, encoders
from plait.data.pairs import Pair, encode_pairs, read_pairs
from plait.data.samples import Samples
from plait.data.stream import Stream
from plait.data.subwords import Subwords
from plait.training.places import RecipeError
from plait.training.stream_inputs import Both, Inputs

T = TypeVar("T")


def _both(
    inputs: Inputs,
    read: Callable[[Sequence[str], Tally], Iterable[T]],
    text: Callable[[T], str],
    encode: Callable[[Iterable[T], Tally], Iterable[Sequence[Sequence[int]]]],
    objective: Callable[..., Any],
) -> Both:
    """Training and validation samples; where a share is held out, samples of equal ``text`` go to one side.

    ``encode`` makes samples into the rows of their lanes, which are kept; ``objective`` is made of these lanes.
    """
    data, tokenizer, rules = inputs.recipe.data, inputs.tokenizer, inputs.rules
    settings = {
        "objective": inputs.recipe.objective.kind,
        "around": [[one.prefix, one.suffix] for one in (tokenizer, tokenizer.target) if one is not None],
        "end": rules.end,
        "forced_first": rules.forced_first,
        "classes": inputs.classes,
        "lowercase": data.lowercase,
        "length": data.length,
        "longest": _longest(inputs),
        "label_until": data.label_until,
    }

    def stream(paths: Sequence[str], side: str = "", keep: Callable[[T], bool] = lambda one: True) -> Samples:
        def make(tally: Tally) -> Iterable[Sequence[Sequence[int]]]:
            return encode((one for one in read(paths, tally) if keep(one)), tally)

        split = [side, data.valid_fraction] if side else []
        lanes, tally = kept(paths, tokenizer, make, settings={**settings, "split": split}, cache=data.cache)
        return inputs.samples(objective(*lanes), tally.facts())

    if share := data.valid_fraction:
        return (
            stream(data.train, "train", lambda one: not held_out(text(one), share)),
            stream(data.train, "valid", lambda one: held_out(text(one), share)),
        )
    return stream(data.train), stream(data.valid) if data.valid else None


def _longest(inputs: Inputs) -> Longest:
    return "cut" if inputs.recipe.data.longest == "cut" else "drop"


def read_sides(inputs: Inputs) -> Callable[[Sequence[str], Tally], Iterable[Pair]]:
    """How pairs are read."""
    return lambda paths, tally: read_pairs(paths, tally, lowercase=inputs.recipe.data.lowercase)


def paired(inputs: Inputs) -> Both:
    """A translation, or any text that answers another."""
    source, target = encoders(inputs.tokenizer, inputs.rules)

    def encode(pairs: Iterable[Pair], tally: Tally) -> Iterable[Sequence[Sequence[int]]]:
        length = inputs.recipe.data.length
        return encode_pairs(pairs, tally, source=source, target=target, length=length, longest=_longest(inputs))

    objective = partial(Paired, start=inputs.start, pad=inputs.pad, subwords=_subwords(inputs))
    return _both(inputs, read_sides(inputs), lambda pair: pair[0], encode, objective)


def _subwords(inputs: Inputs) -> Subwords | None:
    """How tokens fall apart; ``RecipeError`` where the vocabulary has no merges that could be undone."""
    recipe, tokenizer = inputs.recipe, inputs.tokenizer
    if not (rate := recipe.objective.subword_dropout):
        return None
    if tokenizer.target is not None:
        raise RecipeError("objective.subword_dropout: it is of one vocabulary for both sides; say data.joint = true.")
    if not (merged := tokenizer.segmenter.merged):
        raise RecipeError("objective.subword_dropout: the vocabulary has no merges that could be undone; train a BPE.")
    return Subwords.of(merged, rate, seed=recipe.run.seed, longest=recipe.data.length)


def said(both: Iterable[Stream | None]) -> Tensor:
    """The tokens that the targets of streams of pairs have, sorted."""
    objectives = [stream.objective for stream in both if isinstance(stream, Samples)]
    return torch.from_numpy(np.unique(np.concatenate([one.said() for one in objectives if isinstance(one, Paired)])))


def contrastive(inputs: Inputs) -> Both:
    """Texts that belong together."""

    def ids(texts: Sequence[str]) -> list[list[int]]:
        return inputs.tokenizer.encode_batch(texts, control=False)

    def encode(pairs: Iterable[Pair], tally: Tally) -> Iterable[Sequence[Sequence[int]]]:
        length = inputs.recipe.data.length
        return encode_pairs(pairs, tally, source=ids, target=ids, length=length, longest=_longest(inputs))

    return _both(inputs, read_sides(inputs), lambda pair: pair[0], encode, partial(Contrastive, pad=inputs.pad))


def chat(inputs: Inputs) -> Both:
    """The assistant's answers."""

    def render(messages: Messages, prompt: bool) -> list[int]:
        return inputs.tokenizer.chat(list(messages), add_generation_prompt=prompt)

    def encode(chats: Iterable[Messages], tally: Tally) -> Iterable[Sequence[Sequence[int]]]:
        length = inputs.recipe.data.length
        return chat_rows(chats, tally, render=render, ends=inputs.rules.end, length=length, longest=_longest(inputs))

    objective = partial(Given, pad=inputs.pad)
    return _both(inputs, read_chats, asked_first, encode, objective)


def _lower(sample: Sample) -> Sample:
    return sample._replace(text=sample.text.lower(), second=sample.second and sample.second.lower())


def labelled(inputs: Inputs) -> Both:
    """A class, or numbers, for a text or two."""
    data = inputs.recipe.data

    def read(paths: Sequence[str], tally: Tally) -> Iterable[Sample]:
        samples = read_labelled(paths, tally, until=data.label_until)
        return map(_lower, samples) if data.lowercase else samples

    def encode(samples: Iterable[Sample], tally: Tally) -> Iterable[Sequence[Sequence[int]]]:
        return label_rows(
            samples,
            tally,
            tokenizer=inputs.tokenizer,
            length=data.length,
            classes=inputs.classes,
            longest=_longest(inputs),
        )

    objective = partial(Labels, against="values" if inputs.classes is None else "classes", pad=inputs.pad)
    return _both(inputs, read, lambda one: one.text, encode, objective)
