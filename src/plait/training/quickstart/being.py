"""Being: what somebody or something is, how and where it is, and comparisons."""

from __future__ import annotations

from plait.training.quickstart.phrases import Drawing, Phrase
from plait.training.quickstart.sentences import Sentence
from plait.training.quickstart.words import Adjective

BE = {"I": "am", "third": "is", "several": "are"}
LIKENESS = ("clothes", "wheels", "machines", "furniture", "pets")  # groups within which things are compared


def being(d: Drawing) -> Sentence:
    """My father is a doctor. These are Tom's books. Whose car is that?"""
    draw, mood = d.random.random(), d.random.random()
    if draw < 0.55:
        subject, job = d.person(), d.pick(d.words.jobs)
        if subject.head in d.words.people or subject.head in ("children", "students"):
            subject = d.relative()
        noun = d.words.people[job]
        several = subject.head in ("we", "they")
        return _is(subject, noun.several if several else f"a {job}", noun.zh, mood, job)
    en, zh = d.pick(("this 这", "that 那")).split()
    word = d.pick(tuple(d.words.things))
    noun = d.words.things[word]
    if noun.container:
        word, noun = "book", d.words.things["book"]
    if mood < 0.2:
        return Sentence(f"whose {word} is {en}", f"{zh}是谁的{noun.zh}", ((en, "whose", word),), question=True)
    owned = d.owned(noun, several=d.chance(0.25))
    if owned.person == "several":
        en, zh = {"this": ("these", "这些"), "that": ("those", "那些")}[en]
    subject = Phrase(en=en, zh=zh, head=owned.en.split()[0], person=owned.person)
    return _is(subject, owned.en, owned.zh, mood, word)


def _is(subject: Phrase, en: str, zh: str, mood: float, word: str) -> Sentence:
    be, combinations = BE[subject.person], ((subject.head, "be", word),)
    if mood < 0.4:
        return Sentence(f"{be} {subject.en} {en}", f"{subject.zh}是{zh}吗", combinations, question=True)
    if mood < 0.6:
        return Sentence(f"{subject.en} {be} not {en}", f"{subject.zh}不是{zh}", combinations)
    return Sentence(f"{subject.en} {be} {en}", f"{subject.zh}是{zh}", combinations)


def _adjective(d: Drawing, *, compared: bool = False) -> Adjective:
    fitting = [a for a in d.words.adjectives if a.zh and (a.more or not compared)]
    return fitting[int(d.random.random() * len(fitting))]


def _said_of(d: Drawing, adjective: Adjective, word: str) -> Phrase:
    """Somebody, or this or my thing."""
    if word == "people":
        return d.person()
    noun = d.words.noun(word)
    if d.chance(0.4):
        return d.owned(noun)
    en, zh = d.pick(("this 这", "that 那")).split()
    return Phrase(en=f"{en} {word}", zh=f"{zh}{noun.measure}{noun.zh}", head=word)


def quality(d: Drawing) -> Sentence:
    """This coat is too expensive. Are you tired? How much is that hat?"""
    adjective, mood = _adjective(d), d.random.random()
    subject = _said_of(d, adjective, d.pick(adjective.nouns))
    combinations = ((subject.head, adjective.word),)
    if adjective.word == "expensive" and mood < 0.3:
        return Sentence(
            f"how much {BE[subject.person]} {subject.en}", f"{subject.zh}多少钱", ((subject.head, "cost"),), True
        )
    return how(subject, adjective, mood, combinations)


def how(subject: Phrase, a: Adjective, mood: float, combinations: tuple[tuple[str, ...], ...]) -> Sentence:
    """Somebody or something is very, not, too big, or is asked to be."""
    be = BE[subject.person]
    if mood < 0.2:
        return Sentence(f"{be} {subject.en} {a.word}", f"{subject.zh}{a.zh}吗", combinations, question=True)
    if mood < 0.4:
        return Sentence(f"{subject.en} {be} not {a.word}", f"{subject.zh}不{a.zh}", combinations)
    if mood < 0.55:
        return Sentence(f"{subject.en} {be} too {a.word}", f"{subject.zh}太{a.zh}了", combinations)
    return Sentence(f"{subject.en} {be} very {a.word}", f"{subject.zh}很{a.zh}", combinations)


def comparison(d: Drawing) -> Sentence:
    """Tom is taller than Mary. That car is not as fast as my bicycle."""
    a = _adjective(d, compared=True)
    word = d.pick(a.nouns)
    first = _said_of(d, a, word)
    if word == "people":
        second = d.other(first)
    else:
        alike = next((d.words.groups[g] for g in LIKENESS if word in d.words.groups[g]), (word,))
        second = _said_of(d, a, d.pick([w for w in alike if w in a.nouns]) if d.chance(0.5) else word)
        while second.en == first.en:
            second = _said_of(d, a, word)
    be, than = f"{first.en} {BE[first.person]}", second.object
    combinations = ((first.head, a.word, second.head),)
    draw = d.random.random()
    if draw < 0.15:
        return Sentence(f"{be} as {a.word} as {than}", f"{first.zh}和{second.zh}一样{a.zh}", combinations)
    if draw < 0.3:
        return Sentence(f"{be} not as {a.word} as {than}", f"{first.zh}没有{second.zh}{a.zh}", combinations)
    more, after = a.more, ""
    if draw < 0.42:
        more, after = f"much {a.more}", "得多"
    elif draw < 0.54:
        more, after = f"a little {a.more}", "一点"
    elif draw < 0.66:
        return Sentence(
            f"{BE[first.person]} {first.en} {more} than {than}",
            f"{first.zh}比{second.zh}{a.zh}吗",
            combinations,
            question=True,
        )
    return Sentence(f"{be} {more} than {than}", f"{first.zh}比{second.zh}{a.zh}{after}", combinations)


# Where


def _spot(d: Drawing) -> tuple[str, str, str]:
    """Where something can be: English, Chinese after 在, and the noun."""
    if d.chance(0.3):
        en, zh = d.words.places[int(d.random.random() * len(d.words.places))]
        return en, zh, en.split()[-1]
    where, after = d.item(d.words.spots)
    word = d.pick(d.words.groups["furniture"])
    return f"{where} the {word}", f"{d.words.things[word].zh}{after}", word


def existence(d: Drawing) -> Sentence:
    """There are two cats under the table: in Chinese the place comes first."""
    while (spot := _spot(d))[2] == "Beijing":  # no table stands there
        pass
    en, zh, where = spot
    room = en.startswith(("at", "in"))
    word = d.pick(("child", "student", "girl", "boy", "table", "chair", "dog", "cat", "bird") if room else _LYING)
    noun, mood = d.words.noun(word), d.random.random()
    combinations = ((word, "there", where),)
    if mood < 0.15:
        return Sentence(f"there is no {word} {en}", f"{zh}没有{noun.zh}", combinations)
    if mood < 0.3:
        article = d.a(word)
        return Sentence(f"is there {article.en} {en}", f"{zh}有{article.bare}吗", combinations, question=True)
    if mood < 0.42:
        asked = f"{zh}有几{noun.measure}{noun.zh}"
        return Sentence(f"how many {noun.several} are there {en}", asked, combinations, question=True)
    found = d.several(word) if mood < 0.65 else d.a(word)
    return Sentence(f"there {BE[found.person]} {found.en} {en}", f"{zh}有{found.zh}", combinations)


_LYING = (
    "key",
    "pen",
    "umbrella",
    "cup",
    "bag",
    "map",
    "phone",
    "dictionary",
    "photo",
    "book",
    "magazine",
    "cat",
    "hat",
)


def location(d: Drawing) -> Sentence:
    """My key is on the table. Where is Tom?"""
    en, zh, where = _spot(d)
    person, mood = en.startswith(("at", "in")), d.random.random()
    subject = d.person() if person else d.my(d.pick(_LYING))
    be = BE[subject.person]
    if mood < 0.2:
        return Sentence(f"where {be} {subject.en}", f"{subject.zh}在哪里", ((subject.head, "where"),), question=True)
    combinations = ((subject.head, "at", where),)
    if mood < 0.4:
        return Sentence(f"{be} {subject.en} {en}", f"{subject.zh}在{zh}吗", combinations, question=True)
    if mood < 0.6:
        return Sentence(f"{subject.en} {be} not {en}", f"{subject.zh}不在{zh}", combinations)
    return Sentence(f"{subject.en} {be} {en}", f"{subject.zh}在{zh}", combinations)
