"""Grammar: English and Chinese pairs drawn from templates, and a split by combinations that training never sees.

Tense, aspect (了 过 在), negation (不 没), questions (吗, question words in place), measure words, possession, times
and places before the verb, comparisons with 比, relative clauses before the noun: word order really differs.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from plait.training.quickstart import being, questions, relatives, sentences
from plait.training.quickstart.phrases import Drawing
from plait.training.quickstart.sentences import Sentence

KINDS: dict[str, tuple[int, Callable[[Drawing], Sentence]]] = {  # how often, and by what a pair is drawn
    "doing": (30, sentences.doing),
    "feeling": (10, sentences.feeling),
    "kinsfolk": (2, sentences.kinsfolk),
    "going": (7, sentences.going),
    "giving": (4, sentences.giving),
    "what": (9, questions.what_does),
    "who": (5, questions.who_does),
    "circumstances": (6, questions.circumstances),
    "being": (5, being.being),
    "quality": (5, being.quality),
    "comparison": (6, being.comparison),
    "existence": (5, being.existence),
    "location": (5, being.location),
    "relative to a thing": (7, relatives.of_a_thing),
    "relative to a person": (5, relatives.of_a_person),
}
BARE = 0.15  # share of the training pairs without stop, half of them in small letters too, as people type
HELD_OUT = 0.1  # share of the combinations that are kept for the test
SHOWN = frozenset(  # kept for it too: those of the sentences that the quickstart shows (preparing.SHOWN)
    {
        ("I", "love", "you"),
        ("mother", "buy", "book"),
        ("girl", "dance", ""),
        ("girl", "be", "younger sister"),
        ("coat", "expensive", "coat"),
        ("you", "eat", "what"),
        ("cat", "there", "table"),
    }
)


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages, and its kind."""

    en: str
    zh: str
    kind: str


@cache
def is_held_out(combination: tuple[str, ...]) -> bool:
    """Whether a combination is kept for the test: by its words alone, whatever is drawn."""
    digest = hashlib.blake2b("|".join(combination).encode(), digest_size=4).digest()
    return combination in SHOWN or int.from_bytes(digest, "big") < HELD_OUT * 2**32


def draw(seed: int) -> Iterator[Sentence]:
    """Sentences without end, kinds by their weights."""
    drawing = Drawing(seed)
    names, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
    choice = random.Random(seed + 1)
    while True:
        for kind in choice.choices(names, weights, k=1000):
            yield replace(KINDS[kind][1](drawing), kind=kind)


def written(sentence: Sentence, *, stopped: bool = True, capital: bool = True) -> Pair:
    """A sentence with its capital and its stops; or without a stop, or all in small letters."""
    en = sentence.en[0].upper() + sentence.en[1:] if capital else sentence.en.lower()
    stops = ("", "") if not stopped else ("?", "？") if sentence.question else (".", "。")
    return Pair(f"{en}{stops[0]}", f"{sentence.zh}{stops[1]}", sentence.kind)


def corpus(n_train: int, n_test: int, *, seed: int = 0) -> tuple[list[Pair], list[Pair]]:
    """Training and test pairs: no English side twice, and no combination of the test's in training."""
    sides: set[str] = set()
    train: list[Pair] = []
    test: list[Pair] = []
    drawing, marks = Drawing(seed + 1), random.Random(seed + 2)
    for kind, share in _shares(n_test).items():
        while share:
            sentence = replace(KINDS[kind][1](drawing), kind=kind)
            if sentence.en not in sides and all(map(is_held_out, sentence.combinations)):
                sides.add(sentence.en)
                test.append(written(sentence))
                share -= 1
    for sentence in draw(seed):
        if len(train) == n_train:
            break
        if sentence.en not in sides and not any(map(is_held_out, sentence.combinations)):
            sides.add(sentence.en)
            bare = marks.random()
            train.append(written(sentence, stopped=bare > BARE, capital=bare > BARE / 2))
    return train, test


def _shares(n_test: int) -> Counter[str]:
    """Test pairs of each kind, by the weights, together as many as asked for."""
    total = sum(weight for weight, _ in KINDS.values())
    shares = Counter({kind: n_test * weight // total for kind, (weight, _) in KINDS.items()})
    shares["doing"] += n_test - sum(shares.values())
    return shares
