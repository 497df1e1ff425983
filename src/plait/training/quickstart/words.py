"""Words: the quickstart's vocabulary as records, English with its forms and Chinese with its measure words."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from plait.training import quickstart


@dataclass(frozen=True, kw_only=True)
class Noun:
    """A noun: one, several, the Chinese, and its measure word; what is poured has a container and no plural."""

    one: str
    several: str
    zh: str
    measure: str
    container: str = ""


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb: its English forms, its Chinese, what it may have for objects, and in which tenses and places it is."""

    base: str
    third: str
    past: str
    participle: str
    ing: str
    zh: str
    objects: tuple[str, ...] = ()  # nouns, and "people"
    phrases: tuple[tuple[str, str], ...] = ()  # English objects with verb and object in Chinese
    tenses: tuple[str, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    bare: bool = False  # Chinese has no "a" before its object: 骑马
    lasting: bool = True  # it may have been last year


@dataclass(frozen=True, kw_only=True)
class Adjective:
    """An adjective; ``more`` is its comparative, ``zh`` its Chinese after a noun, ``before`` in front of one."""

    word: str
    more: str
    zh: str
    before: str
    nouns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Words:
    """All of them, by kind."""

    pronouns: dict[str, tuple[str, str, str]]
    names: dict[str, str]
    kin: dict[str, str]
    people: dict[str, Noun]
    jobs: tuple[str, ...]
    things: dict[str, Noun]
    numbers: dict[str, str]
    verbs: tuple[Verb, ...]
    destinations: dict[str, dict[str, str]]
    places: tuple[tuple[str, str], ...]
    ways: dict[str, dict[str, str]]
    spots: dict[str, str]
    times: dict[str, dict[str, str]]
    adverbs: dict[str, str]
    adjectives: tuple[Adjective, ...]
    groups: dict[str, tuple[str, ...]]
    function: dict[str, str]  # what a dictionary says of the words that hold a sentence together

    def noun(self, word: str) -> Noun:
        """The noun of that name, thing or person."""
        return self.things[word] if word in self.things else self.people[word]


@cache
def words() -> Words:
    """The vocabulary of ``words.toml``."""
    data = tomllib.loads(resources.files(quickstart).joinpath("words.toml").read_text("utf-8"))
    plurals, groups = data["plurals"], {name: tuple(members) for name, members in data["groups"].items()}
    things = {word: _noun(word, *said.split(), plurals=plurals) for word, said in data["things"].items()}
    for word, said in data["stuff"].items():
        container, measure, zh = said.split()
        things[word] = Noun(one=word, several=word, zh=zh, measure=measure, container=container)
    people = {word: _noun(word, *said.split(), plurals=plurals) for word, said in data["people"].items()}
    return Words(
        pronouns={word: tuple(forms) for word, forms in data["pronouns"].items()},
        names=data["names"],
        kin=data["kin"],
        people=people,
        jobs=tuple(data["jobs"]["words"]),
        things=things,
        numbers=data["numbers"],
        verbs=tuple(_verb(name, said, groups, data["places"]) for name, said in data["verbs"].items()),
        destinations=data["destinations"],
        places=tuple({place: zh for group in data["places"].values() for place, zh in group.items()}.items()),
        ways=data["ways"],
        spots=data["spots"],
        times=data["times"],
        adverbs=data["adverbs"],
        adjectives=tuple(
            Adjective(word=word, more=more, zh=zh, before=before, nouns=spread(nouns, groups))
            for word, (more, zh, before, nouns) in data["adjectives"].items()
        ),
        groups=groups,
        function=data["dictionary"],
    )


def spread(names: Sequence[str], groups: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Nouns, and the nouns of groups, each once."""
    return tuple(dict.fromkeys(word for name in names for word in groups.get(name, (name,))))


def _noun(word: str, measure: str, zh: str, *, plurals: dict[str, str]) -> Noun:
    return Noun(one=word, several=plurals.get(word) or _with_s(word), zh=zh, measure=measure)


def _verb(name: str, said: dict[str, Any], groups: dict[str, tuple[str, ...]], places: dict[str, Any]) -> Verb:
    base = name.partition("#")[0]
    head, _, particle = base.partition(" ")  # look for: looks for
    past, participle, ing = said["forms"].split() if "forms" in said else (_with_ed(head), _with_ed(head), _ing(head))
    tenses = said.get("tenses", "present past future progressive experience already want should").split()
    third, past, participle, ing = (
        f"{form} {particle}".rstrip() for form in ("has" if head == "have" else _with_s(head), past, participle, ing)
    )
    return Verb(
        base=base,
        third=third,
        past=past,
        participle=participle,
        ing=ing,
        zh=said["zh"],
        objects=spread(said.get("objects", ()), groups),
        phrases=tuple(said.get("phrases", {}).items()),
        tenses=tuple(tenses),
        places=tuple({place: zh for group in said.get("places", ()) for place, zh in places[group].items()}.items()),
        bare=said.get("bare", False),
        lasting=said.get("lasting", False),
    )


# How regular words are written


def _with_s(word: str) -> str:
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def _with_ed(word: str) -> str:
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ied"
    return f"{word}d" if word.endswith("e") else f"{word}ed"


def _ing(word: str) -> str:
    return f"{word[:-1]}ing" if word.endswith("e") else f"{word}ing"
