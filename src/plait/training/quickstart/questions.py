"""Questions with a question word, which stands in Chinese where its answer will."""

from __future__ import annotations

from plait.training.quickstart.clauses import Clause, asked_by
from plait.training.quickstart.phrases import Drawing, Phrase
from plait.training.quickstart.sentences import (
    GO,
    WHO,
    Sentence,
    action,
    destination,
    named,
    of_clause,
    state,
    time,
    verb,
    what,
)


def who_does(d: Drawing) -> Sentence:
    """Who is dancing in the park?"""
    return of_clause(action(d, WHO, ask="who") if d.chance(0.75) else state(d, WHO, ask="who"))


def what_does(d: Drawing) -> Sentence:
    """What did you buy yesterday? Who are they looking for? Which film do you like? How many cats do you have?"""
    subject = d.person()
    chosen, tense = verb(d, "present", "past", "future", "progressive", "want", "state", objects=True)
    while (chosen.base, chosen.zh) in (
        ("wear", "戴"),
        ("have", "有"),
        ("keep", "养"),
        ("ride", "骑"),
    ) and tense != "state":
        chosen, tense = verb(d, "past", "future", "progressive", "want", "state", objects=True)
    when = time(d, chosen, tense, 0.5)
    nouns = [word for word in chosen.objects if word != "people"]
    draw = d.random.random()
    if not nouns or ("people" in chosen.objects and draw < 0.3):
        asked = WHO
    elif (draw < 0.5 and chosen.base != "have") or tense == "present":
        asked = Phrase(en="what", zh="什么", head="what")
    else:
        noun = d.words.noun(d.pick([word for word in nouns if not d.words.noun(word).container] or nouns))
        if chosen.base in ("eat", "drink", "buy"):
            noun = d.words.noun(d.pick(nouns))
        counts = (
            draw > 0.75
            and tense != "progressive"
            and chosen.base
            in (
                "buy",
                "sell",
                "eat",
                "drink",
                "read",
                "write",
                "borrow",
                "receive",
                "need",
            )
        )
        if counts or noun.container or chosen.base == "have":
            amount = f"how many {noun.container}s of {noun.one}" if noun.container else f"how many {noun.several}"
            asked = Phrase(en=amount, zh=f"几{noun.measure}{noun.zh}", head=noun.one)
        else:
            asked = Phrase(en=f"which {noun.one}", zh=f"哪{noun.measure}{noun.zh}", head=noun.one)
    return of_clause(Clause(subject=subject, verb=chosen, tense=tense, object=asked, ask="object", time=when))


def circumstances(d: Drawing) -> Sentence:
    """Where did you buy this book? When will she come? Why do you not like him? How does he go to school?"""
    subject, draw = d.person(), d.random.random()
    if draw < 0.25:
        clause = action(d, subject, ask="")
        while clause.tense not in ("past", "want") or (clause.tense == "past" and not clause.negative):
            clause = action(d, subject, ask="")
        return _asked(clause if d.chance(0.5) else state(d, subject, ask=""), ("why", "为什么"))
    if draw < 0.5:
        if d.chance(0.5):
            chosen = named(d, d.pick(("buy", "find")))
            return _asked(
                Clause(subject=subject, verb=chosen, tense="past", object=d.this(d.pick(d.words.groups["small"]))),
                ("where", "在哪里"),
            )
        chosen, tense = verb(d, "present", objects=False)
        return _asked(
            Clause(subject=subject, verb=chosen, tense=tense, **what(d, subject, chosen, tense)), ("where", "在哪里")
        )
    where = destination(d, d.chance(0.5))
    if draw < 0.75:
        tense = d.pick(("past", "future"))
        if d.chance(0.5):
            clause = Clause(subject=subject, verb=GO, tense=tense, object=where)
        else:
            chosen = named(d, d.pick(("buy", "sell", "receive", "wash", "come")))
            solid = [word for word in chosen.objects if not d.words.noun(word).container]
            asked = d.this(d.pick(solid)) if solid else None
            clause = Clause(subject=subject, verb=chosen, tense=tense, object=asked)
        return _asked(clause, ("when", "什么时候"))
    tense = d.pick(("past", "present"))
    clause = Clause(subject=subject, verb=GO, tense=tense, object=where, companion=None)
    return _asked(clause, ("how", "怎么"))


def _asked(clause: Clause, word: tuple[str, str]) -> Sentence:
    en, zh = asked_by(clause, word)
    if word[0] == "when":  # the question says that it is to come
        zh = zh.replace("什么时候会", "什么时候")
    return Sentence(en, zh, (clause.combination,), question=True)
