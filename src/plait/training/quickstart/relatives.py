"""Relative clauses, which Chinese has before the noun: the book *that I bought yesterday*, *我昨天买的*书."""

from __future__ import annotations

from dataclasses import replace

from plait.training.quickstart.being import how
from plait.training.quickstart.clauses import Clause, predicate, relative_chinese, relative_english, said
from plait.training.quickstart.phrases import Drawing, Phrase
from plait.training.quickstart.sentences import NOTHING, Sentence, ambiguous, named, place, state, time, verb, what


def _thing_that(d: Drawing) -> tuple[Clause, Phrase]:
    """A clause about a thing, and the thing with it: the book that I bought yesterday, 我昨天买的书."""
    while (subject := d.person()).en.startswith("that "):  # the book that that girl bought
        pass
    chosen, tense = verb(d, "past", "past", "want", "state", objects=True)
    while (
        not (nouns := [w for w in chosen.objects if w != "people"])
        or chosen.base in ("have", "see", "use", "ride", "keep")
        or (tense == "past" and chosen.base in ("eat", "drink"))
    ):
        chosen, tense = verb(d, "past", "past", "want", "state", objects=True)
    noun = d.words.noun(d.pick(nouns))
    several = not noun.container and d.chance(0.15)
    head = Phrase(en=f"the {noun.several if several else noun.one}", zh=noun.zh, head=noun.one)
    clause = Clause(subject=subject, verb=chosen, tense=tense, object=head, time=time(d, chosen, tense, 0.4))
    if clause.time == NOTHING and tense == "past":
        clause = replace(clause, place=place(d, chosen, 0.25))
    if ambiguous(clause):
        clause = replace(clause, time=time(d, chosen, "past", 1.0))
    whole = Phrase(
        en=relative_english(clause, head),
        zh=f"{relative_chinese(clause)}{noun.zh}",
        head=noun.one,
        person="several" if several else "third",
    )
    return clause, whole


def of_a_thing(d: Drawing) -> Sentence:
    """The book that I bought yesterday is very interesting. Tom likes the skirt that Mary made."""
    clause, whole = _thing_that(d)
    fitting = [a for a in d.words.adjectives if whole.head in a.nouns and a.zh]
    if fitting and d.chance(0.6):
        a = fitting[int(d.random.random() * len(fitting))]
        return how(whole, a, d.random.random(), (clause.combination, (whole.head, a.word)))
    subject = d.other(clause.subject)
    negative = d.chance(0.3)
    like = named(d, "like")
    outer = Clause(subject=subject, verb=like, tense="state", object=whole, negative=negative)
    helper = ("does not like" if negative else "likes") if subject.person == "third" else "do not like"
    helper = helper if negative or subject.person == "third" else "like"
    return Sentence(
        f"{subject.en} {helper} {whole.en}",
        f"{subject.zh}{predicate(outer)}",
        (clause.combination, outer.combination),
    )


def of_a_person(d: Drawing) -> Sentence:
    """The girl who is dancing in the park is my younger sister. The doctor that she knows is very busy."""
    word = d.pick(("student", "child", "girl", "boy", "teacher", "doctor", "nurse", "driver"))
    noun = d.words.people[word]
    head = Phrase(en=f"the {word}", zh=noun.zh, head=word)
    if d.chance(0.35):
        clause = state(d, ask="")
        while clause.verb.base not in ("like", "know", "trust") or clause.negative or clause.subject.en[:5] == "that ":
            clause = state(d, ask="")
        clause = replace(clause, object=head)
        whole = Phrase(en=relative_english(clause, head), zh=f"{relative_chinese(clause)}{noun.zh}", head=word)
    else:
        chosen, tense = verb(d, "progressive")
        found = what(d, head, chosen, tense)
        if "object" in found and found["object"].head in d.words.things:
            found["object"] = d.a(found["object"].head)
        clause = Clause(subject=head, verb=chosen, tense=tense, place=place(d, chosen, 0.5), **found)
        doing = said("is", chosen.ing, clause.object.object if clause.object else clause.phrase[0], clause.place[0])
        # a modifier has no "a", and says that it goes on
        going_on = predicate(replace(clause, ask="whether")).removeprefix("在")
        going_on = going_on if going_on.startswith("正") else f"正在{going_on}"
        whole = Phrase(en=f"{head.en} who {doing}", zh=f"{going_on}的{noun.zh}", head=word)
    draw = d.random.random()
    if draw < 0.35:
        fitting = [a for a in d.words.adjectives if "people" in a.nouns]
        a = fitting[int(d.random.random() * len(fitting))]
        return how(whole, a, d.random.random(), (clause.combination, (word, a.word)))
    if draw < 0.65:
        subject = d.other(clause.subject)
        know = named(d, "know")
        negative, third = d.chance(0.4), subject.person == "third"
        verb_en = (f"do{'es' if third else ''} not know") if negative else ("knows" if third else "know")
        outer = Clause(subject=subject, verb=know, tense="state", object=whole, negative=negative)
        zh = f"{subject.zh}{predicate(outer)}"
        return Sentence(f"{subject.en} {verb_en} {whole.en}", zh, (clause.combination, outer.combination))
    kin = d.owned(d.words.people["friend"]) if d.chance(0.4) else d.relative()
    negative = d.chance(0.25)
    return Sentence(
        f"{whole.en} is {'not ' if negative else ''}{kin.en}",
        f"{whole.zh}{'不' if negative else ''}是{kin.zh}",
        (clause.combination, (word, "be", kin.head)),
    )
