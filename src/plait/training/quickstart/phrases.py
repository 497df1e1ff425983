"""Phrases: who and what a sentence is about, each drawn once and said in both languages.

They need not agree word for word: *a book* is 一本书 with the measure word of books, but only 书 where it is denied or
asked for; *my mother* is 我妈妈 while *my book* is 我的书; *her new phone* is 她的新手机.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from plait.training.quickstart.words import Noun, Words, words

Person = Literal["I", "third", "several"]  # what an English verb agrees with; "you" is several


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """Somebody or something.

    ``en`` and ``object`` are the English before and after a verb; ``zh`` the Chinese; ``bare`` the Chinese without its
    *a*; ``head`` the word that it is about; ``counted`` says that something stands before the Chinese noun.
    """

    en: str
    zh: str
    head: str
    object: str = ""
    bare: str = ""
    person: Person = "third"
    counted: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "object", self.object or self.en)
        object.__setattr__(self, "bare", self.bare or self.zh)


class Drawing:
    """Phrases drawn from a vocabulary by one generator of random numbers."""

    def __init__(self, seed: int, vocabulary: Words | None = None) -> None:
        self.random = random.Random(seed)
        self.words = vocabulary or words()
        adjectives = [a for a in self.words.adjectives if a.before]
        self._fitting = {word: [a for a in adjectives if word in a.nouns] for word in self.words.things}

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.random.random() < share

    def pick(self, options: Sequence[str]) -> str:
        """One of them."""
        return options[int(self.random.random() * len(options))]

    def item(self, table: dict[str, str]) -> tuple[str, str]:
        """English and Chinese of a row."""
        key = self.pick(tuple(table))
        return key, table[key]

    # People

    def pronoun(self) -> Phrase:
        """I, you, he, ..."""
        word = self.pick(tuple(self.words.pronouns))
        object, _, zh = self.words.pronouns[word]
        person: Person = "I" if word == "I" else "third" if word in ("he", "she") else "several"
        return Phrase(en=word, object=object, zh=zh, head=word, person=person)

    def person(self) -> Phrase:
        """Somebody, as often as not a pronoun."""
        draw = self.random.random()
        if draw < 0.45:
            return self.pronoun()
        if draw < 0.62:
            name, zh = self.item(self.words.names)
            return Phrase(en=name, zh=zh, head=name)
        if draw < 0.78:
            return self.relative()
        if draw < 0.86:
            job = self.pick(self.words.jobs[:-1])
            return Phrase(en=f"the {job}", zh=self.words.people[job].zh, head=job)
        if draw < 0.9:
            word = self.pick(("child", "student"))
            noun = self.words.people[word]
            return Phrase(en=f"the {noun.several}", zh=f"{noun.zh}们", head=noun.several, person="several")
        word = self.pick(tuple(self.words.people))
        noun = self.words.people[word]
        if word == "friend":
            return self.owned(noun)
        en, zh = self.pick(("this 这", "that 那")).split()
        return Phrase(en=f"{en} {word}", zh=f"{zh}{noun.measure}{noun.zh}", head=word)

    def relative(self) -> Phrase:
        """A member of somebody's family: no 的 after a pronoun."""
        word, zh = self.item(self.words.kin)
        if self.chance(0.25):
            owner, owner_zh = self.item(self.words.names)
            return Phrase(en=f"{owner}'s {word}", zh=f"{owner_zh}的{zh}", head=word)
        owner = self.pick(("I", "you", "he", "she"))
        _, possessive, owner_zh = self.words.pronouns[owner]
        return Phrase(en=f"{possessive} {word}", zh=f"{owner_zh}{zh}", head=word)

    def other(self, than: Phrase) -> Phrase:
        """Somebody else."""
        while (found := self.person()).head == than.head or {found.en, than.en} == {"we", "I"}:
            pass
        return found

    # Things

    def owner(self) -> tuple[str, str]:
        """Whose, with 的."""
        draw = self.random.random()
        if draw < 0.75:
            _, possessive, zh = self.words.pronouns[self.pick(tuple(self.words.pronouns))]
            return possessive, f"{zh}的"
        if draw < 0.9:
            name, zh = self.item(self.words.names)
            return f"{name}'s", f"{zh}的"
        owner = self.relative()
        return f"{owner.en}'s", f"{owner.zh}的"

    def owned(self, noun: Noun, *, adjective: tuple[str, str] = ("", ""), several: bool = False) -> Phrase:
        """My book, Tom's old car, his mother's books."""
        en, zh = self.owner()
        word = noun.several if several else noun.one
        return Phrase(
            en=_spaced(en, adjective[0], word),
            zh=f"{zh}{adjective[1]}{noun.zh}",
            head=noun.one,
            person="several" if several else "third",
        )

    def adjective(self, word: str) -> tuple[str, str]:
        """One that is said of such a thing, in front of it; often none."""
        if self.chance(0.75):
            return "", ""
        fitting = self._fitting.get(word)
        if not fitting:
            return "", ""
        chosen = fitting[int(self.random.random() * len(fitting))]
        return chosen.word, chosen.before

    def plain(self, word: str) -> Phrase:
        """One of its kind where Chinese does not count: a horse 马, tea 茶."""
        noun = self.words.noun(word)
        if noun.container:
            return self.some(word)
        return Phrase(en=f"{'an' if word[0] in 'aeiou' else 'a'} {word}", zh=noun.zh, head=word, counted=False)

    def a(self, word: str) -> Phrase:
        """One of its kind: a book 一本书, a cup of tea 一杯茶."""
        noun = self.words.noun(word)
        if noun.container:
            return Phrase(
                en=f"a {noun.container} of {word}", zh=f"一{noun.measure}{noun.zh}", bare=noun.zh, head=noun.one
            )
        adjective, before = self.adjective(word)
        en = _spaced(adjective, word)
        article = "an" if en[0] in "aeiou" else "a"
        return Phrase(
            en=f"{article} {en}", zh=f"一{noun.measure}{before}{noun.zh}", bare=f"{before}{noun.zh}", head=word
        )

    def some(self, word: str) -> Phrase:
        """Of its kind in general: books 书, tea 茶."""
        noun = self.words.noun(word)
        person: Person = "third" if noun.container else "several"
        return Phrase(en=noun.several, zh=noun.zh, head=word, person=person, counted=False)

    def several(self, word: str) -> Phrase:
        """So many: two books 两本书, three cups of tea 三杯茶."""
        noun = self.words.noun(word)
        number, zh = self.item(self.words.numbers)
        what = f"{number} {noun.container}s of {word}" if noun.container else f"{number} {noun.several}"
        return Phrase(en=what, zh=f"{zh}{noun.measure}{noun.zh}", head=word, person="several")

    def this(self, word: str) -> Phrase:
        """The one here or there: this book 这本书, those books 那些书."""
        noun = self.words.noun(word)
        many = not noun.container and self.chance(0.25)
        en, zh = self.pick(("these 这些", "those 那些") if many else ("this 这", "that 那")).split()
        if noun.container:
            return Phrase(en=f"{en} {noun.container} of {word}", zh=f"{zh}{noun.measure}{noun.zh}", head=word)
        if many:
            return Phrase(en=f"{en} {noun.several}", zh=f"{zh}{noun.zh}", head=word, person="several")
        adjective, before = self.adjective(word)
        return Phrase(en=_spaced(en, adjective, word), zh=f"{zh}{noun.measure}{before}{noun.zh}", head=word)

    def my(self, word: str) -> Phrase:
        """Somebody's; what is poured belongs to nobody."""
        noun = self.words.noun(word)
        if noun.container:
            return self.this(word)
        adjective = self.adjective(word)
        if adjective[1].endswith("的"):  # one 的 is enough
            adjective = ("", "")
        return self.owned(noun, adjective=adjective, several=self.chance(0.15))


def _spaced(*parts: str) -> str:
    return " ".join(part for part in parts if part)
