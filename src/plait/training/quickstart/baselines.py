"""Baselines: what a translation is worth that only looks words up, or only remembers the sentence most like it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from plait.training.quickstart.grammar import Pair
from plait.training.quickstart.words import words

_WORDS = re.compile(r"[\w']+|[.?]")
_STOPS = {".": "。", "?": "？"}


@cache
def dictionary() -> dict[str, str]:
    """Every English word and fixed phrase of the vocabulary, in lower case, with its Chinese."""
    w = words()
    found: dict[str, str] = {}
    for subject, (object, possessive, zh) in w.pronouns.items():
        found |= {possessive: f"{zh}的", object: zh, subject.lower(): zh}
    for noun in (*w.things.values(), *w.people.values()):
        found |= {noun.one: noun.zh, noun.several: noun.zh}
        if noun.container:
            found |= {noun.container: noun.measure, f"{noun.container}s": noun.measure, "of": ""}
    for adjective in w.adjectives:
        found[adjective.word] = adjective.before or adjective.zh
        if adjective.more:
            found[adjective.more] = adjective.zh
    for verb in w.verbs:
        found |= dict.fromkeys((verb.base, verb.third, verb.ing), verb.zh)
        found |= {verb.participle: f"{verb.zh}过", verb.past: f"{verb.zh}了"}
        found |= {phrase: zh[1:] for phrase, zh in verb.phrases}
    tables = (w.names, w.kin, w.numbers, w.adverbs, w.spots, *w.times.values(), *w.ways.values())
    for table in (*tables, *w.destinations.values(), w.function):
        found |= {word.lower(): zh for word, zh in table.items()}
    return found | dict(w.places)


def word_for_word(english: str) -> str:
    """Each word looked up where it stands, the longest phrase first; what is not in the dictionary is left out."""
    entries, tokens = dictionary(), _WORDS.findall(english.lower())
    said: list[str] = []
    while tokens:
        for n in range(min(4, len(tokens)), 0, -1):
            phrase = " ".join(tokens[:n])
            if phrase in entries or n == 1:
                if phrase not in entries and phrase.endswith("'s"):
                    said.append(f"{entries.get(phrase[:-2], '')}的")
                else:
                    said.append(_STOPS.get(phrase) or entries.get(phrase, ""))
                del tokens[:n]
                break
    return "".join(said)


class Nearest:
    """The Chinese of the training sentence that shares most words, and among those the one most alike in order."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self._words = [_WORDS.findall(pair.en.lower()) for pair in pairs]
        self._columns = {word: n for n, word in enumerate(dict.fromkeys(w for found in self._words for w in found))}
        self._has = np.zeros((len(pairs), len(self._columns)), dtype=np.float32)  # pairs, words
        for row, found in zip(self._has, self._words, strict=True):
            row[[self._columns[word] for word in found]] = 1
        self._lengths = np.array([len(found) for found in self._words], dtype=np.float32)

    def __call__(self, english: str) -> str:
        """The translation it remembers."""
        own = _WORDS.findall(english.lower())
        asked = np.zeros(len(self._columns), dtype=np.float32)
        asked[[self._columns[word] for word in own if word in self._columns]] = 1
        alike = 2 * (self._has @ asked) / (self._lengths + len(own))  # Dice
        match = difflib.SequenceMatcher(None, autojunk=False)
        match.set_seq2(own)

        def order(number: int) -> float:
            match.set_seq1(self._words[number])
            return match.ratio()

        few = np.flatnonzero(alike == alike.max())[:5]
        return self.pairs[max(few.tolist(), key=order)].zh


def exact(said: Sequence[str], pairs: Sequence[Pair]) -> float:
    """The share of translations that are the expected one, to the character."""
    return sum(one.strip() == pair.zh for one, pair in zip(said, pairs, strict=True)) / len(pairs)
