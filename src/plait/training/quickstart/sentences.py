"""Sentences: what is done, told, denied, or asked whether; each kind is drawn by a function.

questions.py has those with a question word, being.py what somebody or something is, relatives.py relative clauses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from plait.training.quickstart.clauses import Ask, Clause, chinese, english
from plait.training.quickstart.phrases import Drawing, Phrase
from plait.training.quickstart.words import Verb

COMPANY = ("watch", "eat", "drink", "sing", "listen to", "play", "study", "swim", "dance", "run", "work", "cook")
RECEIVING = {"buy": "for", "make": "for", "draw": "for", "write": "to"}
GIVE = Verb(base="give", third="gives", past="gave", participle="given", ing="giving", zh="给")
BARE = ("present", "can", "experience", "progressive")
Form = Callable[[str], Phrase]
GO = Verb(base="go", third="goes", past="went", participle="been", ing="going", zh="去", lasting=True)
WHO = Phrase(en="who", zh="谁", head="who")
NOTHING = ("", "")


@dataclass(frozen=True)
class Sentence:
    """A pair without its capital and full stop, its combinations of subject, verb and object, and its kind."""

    en: str
    zh: str
    combinations: tuple[tuple[str, ...], ...]
    question: bool = False
    kind: str = ""


def of_clause(c: Clause) -> Sentence:
    """The sentence that is one clause."""
    return Sentence(english(c), chinese(c), (c.combination,), bool(c.ask))


# What goes with a verb


def verb(d: Drawing, *tenses: str, objects: bool | None = None) -> tuple[Verb, str]:
    """A verb with one of these tenses; with or without objects where that is said."""
    while True:
        chosen = d.words.verbs[int(d.random.random() * len(d.words.verbs))]
        fitting = [tense for tense in chosen.tenses if tense in tenses]
        if fitting and (objects is None or objects == bool(chosen.objects)):
            return chosen, d.pick(fitting)


def named(d: Drawing, base: str) -> Verb:
    """The verb of that English."""
    return next(verb for verb in d.words.verbs if verb.base == base)


def thing(d: Drawing, chosen: Verb, tense: str, *, plain: bool = True, often: bool = False) -> Phrase:
    """Something that this is done to, as both languages say it in this tense; ``plain``: neither denied nor asked."""
    word = d.pick([word for word in chosen.objects if word != "people"])
    one: Form = d.a if plain and tense not in ("experience", "never") else d.plain
    if chosen.bare:
        return d.plain(word) if tense in BARE or d.chance(0.5) else d.this(word)
    forms: dict[str, tuple[Form, ...]] = {
        "state": (d.some, d.this, d.my) if chosen.base == "like" else (one, d.several if plain else one, d.this),
        "present": (d.a,) if often and plain else (d.some,),
        "past": (d.a, d.a, d.several, d.this, d.my, d.some) if plain else (d.plain, d.some, d.this, d.my),
        "progressive": (one, d.some, d.this) if chosen.base == "write" else (one, d.some, d.this, d.my),
        "experience": (one, d.some) if chosen.base in ("eat", "drink") else (one, d.this),
        "never": (one, d.this),
        "already": (d.several, d.this, d.my) if plain else (d.this, d.my),
        "want": (one, d.several, d.this, d.some) if plain else (one, d.this, d.some),
        "future": (one, d.several, d.this, d.some) if plain else (one, d.this, d.some),
        "should": (d.this, d.some),
    }
    owned = {"have": (one, d.several) if plain else (one,), "find": (d.my, d.this), "look for": (d.my, d.this)}
    fitting = owned.get(chosen.base) or forms[tense]
    return fitting[int(d.random.random() * len(fitting))](word)


def what(d: Drawing, subject: Phrase, chosen: Verb, tense: str, **how: bool) -> dict[str, Any]:
    """The object of a clause, whichever kind this verb has."""
    if chosen.phrases:
        phrases = chosen.phrases
        return {"phrase": phrases[int(d.random.random() * len(phrases))]}
    if not chosen.objects:
        return {}
    if "people" in chosen.objects and (len(chosen.objects) == 1 or d.chance(0.25)):
        return {"object": d.other(subject)}
    return {"object": thing(d, chosen, tense, **how)}


def place(d: Drawing, chosen: Verb, share: float) -> tuple[str, str]:
    """Where it is done, so often."""
    if not chosen.places or not d.chance(share):
        return NOTHING
    return chosen.places[int(d.random.random() * len(chosen.places))]


def time(d: Drawing, chosen: Verb, tense: str, share: float) -> tuple[str, str]:
    """When, so often; a time that fits verb and tense."""
    if tense not in d.words.times or not d.chance(share):
        return NOTHING
    while (found := d.item(d.words.times[tense]))[0] in ("last year", "next year") and not chosen.lasting:
        pass
    return found


def ambiguous(c: Clause) -> bool:
    """Whether only a time would say that *I read a book* is past."""
    plain = not c.negative and c.ask in ("", "who", "object")
    return c.tense == "past" and c.verb.past == c.verb.base and plain and c.time == NOTHING


# What is done


def action(d: Drawing, subject: Phrase | None = None, *, ask: Ask | None = None) -> Clause:
    """Somebody does something, in any tense, denied or asked for."""
    subject = subject or d.person()
    tenses = ("present", "past", "past", "future", "progressive", "experience", "already", "want", "can", "should")
    chosen, tense = verb(d, *tenses)
    draw = d.random.random()
    if ask is None:
        ask = "whether" if draw < 0.2 else ""
    negative = ask == "" and draw > 0.75
    if tense == "already" and ask == "whether":
        ask = ""
    if tense == "experience" and negative and d.chance(0.5):
        tense, negative = "never", False
    plain = not negative and ask in ("", "who")
    when = NOTHING if chosen.base == "keep" else time(d, chosen, tense, 0.5)
    adverb = NOTHING
    if tense == "present" and when == NOTHING and plain and chosen.base != "keep":
        adverb = d.item(d.words.adverbs) if d.chance(0.5) else NOTHING
    often = when[0].startswith("every")
    if tense == "present" and negative and often:
        when = NOTHING
    where = NOTHING if tense == "can" else place(d, chosen, 0.35)
    company = tense in ("present", "past", "future", "progressive", "want") and chosen.base in COMPANY
    clause = Clause(
        subject=subject,
        verb=chosen,
        tense=tense,
        negative=negative,
        ask=ask,
        adverb=adverb,
        time=when,
        place=where,
        companion=d.other(subject) if company and where == NOTHING and d.chance(0.25) else None,
        **what(d, subject, chosen, tense, plain=plain, often=often),
    )
    to = RECEIVING.get(chosen.base)
    if to and (to == "for" or (clause.object and clause.object.head == "letter")) and where == NOTHING:
        if tense in ("past", "future", "want", "progressive") and d.chance(0.4):
            clause = replace(clause, receiver=(to, d.other(subject)))
    return replace(clause, time=time(d, chosen, "past", 1.0)) if ambiguous(clause) else clause


def doing(d: Drawing) -> Sentence:
    """Tom bought two books in the shop yesterday."""
    return of_clause(action(d))


def state(d: Drawing, subject: Phrase | None = None, *, ask: Ask | None = None) -> Clause:
    """Somebody likes, has, needs something, loves, knows, trusts somebody."""
    subject = subject or d.person()
    chosen, tense = verb(d, "state")
    draw = d.random.random()
    if ask is None:
        ask = "whether" if draw < 0.25 else ""
    negative = ask == "" and draw > 0.7
    found = what(d, subject, chosen, tense, plain=not negative and ask in ("", "who"))
    return Clause(subject=subject, verb=chosen, tense=tense, negative=negative, ask=ask, **found)


def feeling(d: Drawing) -> Sentence:
    """I love you."""
    return of_clause(state(d))


def kinsfolk(d: Drawing) -> Sentence:
    """Mary has two older brothers."""
    subject, (word, zh) = d.person(), d.item({k: v for k, v in d.words.kin.items() if " " in k})
    have = named(d, "have")
    draw = d.random.random()
    number, number_zh = d.pick(("two 两", "three 三", "four 四") if draw < 0.4 else ("an 一",)).split()
    several = number != "an"
    family = Phrase(
        en=f"{number} {word}{'s' if several else ''}", zh=f"{number_zh}个{zh}", bare=zh, head=word, person="third"
    )
    ask: Ask = "whether" if draw > 0.8 else ""
    family = family if not several else replace(family, person="several")
    if word.startswith("younger"):
        family = replace(family, en=family.en.replace("an ", "a "), object=family.en.replace("an ", "a "))
    return of_clause(
        Clause(subject=subject, verb=have, tense="state", object=family, ask=ask, negative=0.6 < draw <= 0.8)
    )


def destination(d: Drawing, far: bool) -> Phrase:
    """Where somebody goes, as an object that nothing counts."""
    name, zh = d.item(d.words.destinations["far" if far else "near"])
    return Phrase(en=f"to {name}", zh=zh, head=name)


def going(d: Drawing) -> Sentence:
    """He went to Beijing by train with his friend last week."""
    subject, tense = d.person(), d.pick(("past", "past", "future", "experience", "want", "present"))
    far = tense == "experience" or (tense != "present" and d.chance(0.4))
    where, draw = destination(d, far), d.random.random()
    way = (
        d.item(d.words.ways["far" if far else "near"])
        if tense not in ("experience", "want") and d.chance(0.4)
        else NOTHING
    )
    company = way == NOTHING and tense != "experience" and d.chance(0.3)
    clause = Clause(
        subject=subject,
        verb=GO,
        tense=tense,
        object=where,
        way=way,
        companion=d.other(subject) if company else None,
        time=time(d, GO, tense, 0.5),
        negative=draw > 0.8,
        ask="whether" if draw < 0.2 else "",
    )
    return of_clause(clause)


def giving(d: Drawing) -> Sentence:
    """Tom gave Mary a book. Please give me a cup of tea."""
    word = d.pick((*d.words.groups["goods"], *d.words.groups["drinks"]))
    form: Any = d.pick(("a", "several", "this", "my"))
    gift: Phrase = getattr(d, form)(word)
    if d.chance(0.25):
        me = d.other(Phrase(en="you", zh="你", head="you"))
        return Sentence(f"please give {me.object} {gift.en}", f"请给{me.zh}{gift.zh}", (("you", "give", word),))
    subject = d.person()
    to = d.other(subject)
    past = d.chance(0.6)
    when = time(d, GIVE, "past" if past else "future", 0.5)
    en = f"{subject.en} {'gave' if past else 'will give'} {to.object} {gift.en}"
    zh = f"{subject.zh}{when[1]}{'给了' if past else '会给'}{to.zh}{gift.zh}"
    return Sentence(f"{en} {when[0]}".rstrip(), zh, ((subject.head, "give", word),))
