"""Streams of samples: pairs, chats, labelled sentences, each read whole and kept in memory as ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from plait.data.chat import chat_rows
from plait.data.chats import Messages, asked_first, read_chats
from plait.data.contrastive import Contrastive
from plait.data.held_out import held_out
from plait.data.labelled import Sample, read_labelled
from plait.data.labels import label_rows
from plait.data.lines import Tally
from plait.data.longest import Longest
from plait.data.paired import Paired, encoders
from plait.data.pairs import Pair, encode_pairs, read_pairs
from plait.data.samples import Samples
from plait.training.stream_inputs import Both, Inputs

T = TypeVar("T")


def _both(
    inputs: Inputs,
    read: Callable[[Sequence[str], Tally], Iterable[T]],
    text: Callable[[T], str],
    make: Callable[[Iterable[T], Tally], Any],
) -> Both:
    """Training and validation samples; where a share is held out, samples of equal ``text`` go to one side."""
    data = inputs.recipe.data

    def stream(paths: Sequence[str], keep: Callable[[T], bool] = lambda one: True) -> Samples:
        tally = Tally()
        objective = make((one for one in read(paths, tally) if keep(one)), tally)
        return inputs.samples(objective, tally.facts())

    if share := data.valid_fraction:
        return (
            stream(data.train, lambda one: not held_out(text(one), share)),
            stream(data.train, lambda one: held_out(text(one), share)),
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

    def make(pairs: Iterable[Pair], tally: Tally) -> Any:
        length = inputs.recipe.data.length
        rows: Any = encode_pairs(pairs, tally, source=source, target=target, length=length, longest=_longest(inputs))
        return Paired(*rows, start=inputs.start, pad=inputs.pad)

    return _both(inputs, read_sides(inputs), lambda pair: pair[0], make)


def contrastive(inputs: Inputs) -> Both:
    """Texts that belong together."""

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return inputs.tokenizer.encode_batch(texts, control=False)

    def make(pairs: Iterable[Pair], tally: Tally) -> Any:
        length = inputs.recipe.data.length
        rows: Any = encode_pairs(pairs, tally, source=encode, target=encode, length=length, longest=_longest(inputs))
        return Contrastive(*rows, pad=inputs.pad)

    return _both(inputs, read_sides(inputs), lambda pair: pair[0], make)


def chat(inputs: Inputs) -> Both:
    """The assistant's answers."""

    def render(messages: Messages, prompt: bool) -> list[int]:
        return inputs.tokenizer.chat(list(messages), add_generation_prompt=prompt)

    def make(chats: Iterable[Messages], tally: Tally) -> Any:
        return chat_rows(
            chats,
            tally,
            render=render,
            ends=inputs.rules.end,
            length=inputs.recipe.data.length,
            longest=_longest(inputs),
            pad=inputs.pad,
        )

    return _both(inputs, read_chats, asked_first, make)


def labelled(inputs: Inputs) -> Both:
    """A class, or numbers, for a text or two."""

    def make(samples: Iterable[Sample], tally: Tally) -> Any:
        return label_rows(
            samples,
            tally,
            tokenizer=inputs.tokenizer,
            length=inputs.recipe.data.length,
            classes=inputs.classes,
            longest=_longest(inputs),
            pad=inputs.pad,
        )

    until = inputs.recipe.data.label_until
    return _both(inputs, lambda paths, tally: read_labelled(paths, tally, until=until), lambda one: one.text, make)
