"""Clauses: a verb with all that goes with it, one record that is said in English and in Chinese.

English   subject  helper  not  adverb  verb  object  to/for whom  with whom  how  where  when
Chinese   subject  when  adverb  不/没  在/会/想  with whom  where  how  to whom  verb 了/过  object  了  吗
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from plait.training.quickstart.phrases import Phrase
from plait.training.quickstart.words import Verb

Ask = Literal["", "whether", "who", "object"]  # "object": the object holds the question word: what, which book

# What stands before the verb, what does when it is denied, and what follows the verb
MARKS: dict[str, tuple[str, str, str]] = {
    "state": ("", "不", ""),
    "present": ("", "不", ""),
    "past": ("", "没", "了"),
    "future": ("会", "不会", ""),
    "progressive": ("在", "没在", ""),
    "experience": ("", "没", "过"),
    "never": ("", "从来没", "过"),
    "already": ("已经", "还没", "了"),
    "want": ("想", "不想", ""),
    "can": ("会", "不会", ""),
    "should": ("应该", "不应该", ""),
}


@dataclass(frozen=True, kw_only=True)
class Clause:
    """Who does what; each pair is English and Chinese."""

    subject: Phrase
    verb: Verb
    tense: str
    object: Phrase | None = None
    phrase: tuple[str, str] = ("", "")  # an object that Chinese has in the verb: the piano, 弹钢琴
    negative: bool = False
    ask: Ask = ""
    adverb: tuple[str, str] = ("", "")
    receiver: tuple[str, Phrase] | None = None  # to or for, and whom
    companion: Phrase | None = None
    way: tuple[str, str] = ("", "")
    place: tuple[str, str] = ("", "")
    time: tuple[str, str] = ("", "")
    done: bool = True  # whether Chinese marks what is over with 了; before a noun it does not

    @property
    def combination(self) -> tuple[str, ...]:
        """Subject, verb and object: what is kept apart between training and test."""
        return self.subject.head, self.verb.base, self.object.head if self.object else self.phrase[0]


def english(c: Clause) -> str:
    """The clause as English has it; a question begins with its helper or with what it asks for."""
    helper, inner = _helper(c)
    asked = c.object.object if c.object and c.ask == "object" else ""
    turned = c.ask in ("whether", "object")
    subject = [helper, c.subject.en] if turned else [c.subject.en, helper]
    if c.negative and c.tense != "never":
        subject = [*subject[:-1], f"{subject[-1]}{'' if subject[-1] == 'can' else ' '}not"]
    return said(asked, *subject, c.adverb[0], inner, *_after_verb(c, object=not asked))


def relative_english(c: Clause, head: Phrase) -> str:
    """What is said of the clause's object, after it: the book *that I bought yesterday*."""
    helper, inner = _helper(c)
    return said(head.object, "that", c.subject.en, helper, inner, *_after_verb(c, object=False))


def _after_verb(c: Clause, *, object: bool) -> list[str]:
    after = [c.object.object] if c.object and object else [c.phrase[0]]
    if c.receiver:
        after += [c.receiver[0], c.receiver[1].object]
    if c.companion:
        after += ["with", c.companion.object]
    after += [c.way[0], c.place[0], c.time[0]]
    return [*after, "yet"] if c.tense == "already" and c.negative else after


def _helper(c: Clause) -> tuple[str, str]:
    """The helping verb, and what the verb itself becomes."""
    third = c.subject.person == "third"
    plain = not c.negative and c.ask in ("", "who")
    have, verb = "has" if third else "have", c.verb
    match c.tense:
        case "past":
            return ("", verb.past) if plain else ("did", verb.base)
        case "future":
            return "will", verb.base
        case "progressive":
            return {"I": "am", "third": "is", "several": "are"}[c.subject.person], verb.ing
        case "experience":
            return have, f"ever {verb.participle}" if c.ask == "whether" else verb.participle
        case "never":
            return have, f"never {verb.participle}"
        case "already":
            return have, verb.participle if c.negative else f"already {verb.participle}"
        case "can" | "should":
            return c.tense, verb.base
    base = f"want to {verb.base}" if c.tense == "want" else verb.base
    inflected = f"wants to {verb.base}" if c.tense == "want" else verb.third
    if plain:
        return "", inflected if third else base
    return "does" if third else "do", base


def chinese(c: Clause) -> str:
    """The clause as Chinese has it: when, where and with whom before the verb; a question word where its answer is."""
    asking = "吗" if c.ask == "whether" else ""
    return "".join((c.subject.zh, c.time[1], c.adverb[1], predicate(c), asking))


def predicate(c: Clause) -> str:
    """The Chinese from the verb's marks on."""
    before, denied, after = MARKS[c.tense]
    denies = c.negative or c.tense == "never"
    mark = denied if denies else before
    if c.verb.zh == "有" and c.negative:
        mark = "没"
    if after == "了" and (denies or not c.done):
        after = ""
    where = f"在{c.place[1]}" if c.place[1] else ""
    if where and not c.companion and c.tense == "progressive":  # one 在 says both
        mark = "没" if denies else "正"
    elif c.time[0] == "now" and not denies:
        mark = f"正{mark}"
    companion = f"和{c.companion.zh}一起" if c.companion else ""
    receiver = f"给{c.receiver[1].zh}" if c.receiver else ""
    bare = c.negative or c.ask == "whether" or c.tense in ("experience", "never")
    what = (c.object.bare if bare else c.object.zh) if c.object else ""
    verb = c.phrase[1] or c.verb.zh
    if after == "了" and (c.ask == "whether" or not c.object or not c.object.counted):
        done = f"{verb}{what}了"
    elif c.phrase[1] or not c.object:
        done = _split(verb, after)
    else:
        done = f"{verb}{after}{what}"
    return "".join((mark, companion, where, c.way[1], receiver, done))


def _split(verb: str, after: str) -> str:
    """A verb that holds its object takes its mark inside: 弹过钢琴, 学习过中文."""
    if not after:
        return verb
    stem = 2 if verb.startswith("学习") else 1
    return f"{verb[:stem]}{after}{verb[stem:]}"


def relative_chinese(c: Clause) -> str:
    """What is said of the clause's object, before it: *我昨天买的*书."""
    return f"{c.subject.zh}{c.time[1]}{predicate(replace(c, object=None, done=False))}的"


def asked_by(c: Clause, word: tuple[str, str]) -> tuple[str, str]:
    """Both sides of a question about the circumstances: where, when, why, how; in Chinese after subject and time.

    Of something done once Chinese asks with 是 ... 的: 你是在哪里买的这本书.
    """
    asked = said(word[0], english(replace(c, ask="whether")))
    if c.tense == "past" and not c.negative:
        what = c.object.zh if c.object else ""
        return asked, f"{c.subject.zh}是{word[1]}{c.verb.zh}的{what}"
    return asked, f"{c.subject.zh}{c.time[1]}{word[1]}{predicate(replace(c, ask='object'))}"


def said(*parts: str) -> str:
    """English words with spaces between."""
    return " ".join(part for part in parts if part)
