"""The quickstart's grammar: correct on both sides, deterministic, and a test that training never saw."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import pytest

from plait.training.quickstart.baselines import Nearest, exact, word_for_word
from plait.training.quickstart.clauses import Clause, chinese, english
from plait.training.quickstart.grammar import KINDS, Pair, corpus, draw, is_held_out, written
from plait.training.quickstart.phrases import Phrase
from plait.training.quickstart.preparing import SHOWN
from plait.training.quickstart.sentences import Sentence
from plait.training.quickstart.words import words


@pytest.fixture(scope="module")
def drawn() -> list[Sentence]:
    return list(islice(draw(0), 10_000))


@pytest.fixture(scope="module")
def sides() -> tuple[list[Pair], list[Pair]]:
    return corpus(6000, 500)


def bare(english: str) -> str:
    return english.rstrip(".?").lower()


def test_no_english_side_is_in_training_and_test(sides: tuple[list[Pair], list[Pair]]):
    train, test = sides
    assert len(train) == 6000 and len(test) == 500
    everything = [bare(pair.en) for pair in (*train, *test)]
    assert len(set(everything)) == len(everything)


def test_what_is_tested_was_never_combined_in_training(drawn: list[Sentence], sides: tuple[list[Pair], list[Pair]]):
    combined = {bare(written(sentence).en): sentence.combinations for sentence in drawn}
    train, test = ({bare(pair.en) for pair in side} for side in sides)
    seen = {c for english in combined.keys() & train for c in combined[english]}
    held = {c for english in combined.keys() & test for c in combined[english]}
    assert len(seen) > 1000 and held
    assert not seen & held and not any(map(is_held_out, seen)) and all(map(is_held_out, held))


def test_a_seed_is_a_corpus():
    assert corpus(300, 50) == corpus(300, 50)
    assert corpus(300, 50, seed=1) != corpus(300, 50)


def test_every_kind_is_drawn_in_training_and_test(sides: tuple[list[Pair], list[Pair]]):
    for side in sides:
        assert {pair.kind for pair in side} == set(KINDS)


def test_an_english_sentence_has_one_chinese(drawn: list[Sentence]):
    found: dict[str, str] = {}
    for sentence in drawn:
        assert found.setdefault(sentence.en, sentence.zh) == sentence.zh, sentence.en


def test_chinese_is_chinese_and_english_is_english(drawn: list[Sentence]):
    for pair in map(written, drawn):
        assert re.fullmatch(r"[\u4e00-\u9fff]+[。？]", pair.zh), pair
        assert re.fullmatch(r"[A-Z][A-Za-z' ]*[.?]", pair.en), pair
        assert "  " not in pair.en and not re.search(r"\ba [aeiou]|\ban [^aeiou]", pair.en), pair
        assert (pair.en[-1] == "?") == (pair.zh[-1] == "？"), pair
        assert "的的" not in pair.zh and "了了" not in pair.zh and "在在" not in pair.zh.replace("现在在", ""), pair


def test_counted_nouns_have_their_own_measure_word(drawn: list[Sentence]):
    vocabulary = words()
    nouns = {noun.zh: noun.measure for noun in (*vocabulary.things.values(), *vocabulary.people.values())}
    adjectives = [a.before for a in vocabulary.adjectives if a.before]
    measures = {noun.measure for noun in vocabulary.things.values()} | {"个", "位"}
    after = "|".join(sorted(nouns, key=len, reverse=True))
    phrase = re.compile(f"[两三四五十几哪]({'|'.join(measures)})({'|'.join(adjectives)})?({after})")
    counted = [match.groups() for sentence in drawn for match in phrase.finditer(sentence.zh)]
    assert len(counted) > 500
    for measure, _, noun in counted:
        assert nouns[noun] == measure, (measure, noun)


def somebody(word: str) -> Phrase:
    object, _, zh = words().pronouns[word]
    return Phrase(en=word, object=object, zh=zh, head=word, person="I" if word == "I" else "third")


def clause(subject: str, base: str, tense: str, object: Phrase | None = None, **more: Any) -> Clause:
    verb = next(verb for verb in words().verbs if verb.base == base)
    return Clause(subject=somebody(subject), verb=verb, tense=tense, object=object, **more)


BOOK = Phrase(en="a book", zh="一本书", bare="书", head="book")
TEA = Phrase(en="tea", zh="茶", head="tea", counted=False)
HORSE = Phrase(en="a horse", zh="马", head="horse", counted=False)
PARK, SHOP, YESTERDAY = ("in the park", "公园里"), ("in the shop", "商店里"), ("yesterday", "昨天")


@pytest.mark.parametrize(
    ("said", "en", "zh"),
    [
        (clause("I", "love", "state", somebody("he")), "I love him", "我爱他"),
        (clause("he", "buy", "past", BOOK, place=SHOP, time=YESTERDAY), "he bought a book in the shop yesterday",
         "他昨天在商店里买了一本书"),
        (clause("he", "drink", "past", TEA), "he drank tea", "他喝茶了"),
        (clause("he", "buy", "past", BOOK, negative=True), "he did not buy a book", "他没买书"),
        (clause("he", "buy", "past", BOOK, ask="whether"), "did he buy a book", "他买书了吗"),
        (clause("she", "drink", "present", TEA, negative=True), "she does not drink tea", "她不喝茶"),
        (clause("she", "read", "progressive", BOOK), "she is reading a book", "她在看一本书"),
        (clause("she", "dance", "progressive", place=PARK), "she is dancing in the park", "她正在公园里跳舞"),
        (clause("she", "dance", "progressive", place=PARK, negative=True), "she is not dancing in the park",
         "她没在公园里跳舞"),
        (clause("I", "ride", "experience", HORSE), "I have ridden a horse", "我骑过马"),
        (clause("I", "ride", "never", HORSE), "I have never ridden a horse", "我从来没骑过马"),
        (clause("he", "ride", "experience", HORSE, ask="whether"), "has he ever ridden a horse", "他骑过马吗"),
        (clause("he", "play", "experience", phrase=("the piano", "弹钢琴")), "he has played the piano", "他弹过钢琴"),
        (clause("he", "buy", "want", BOOK), "he wants to buy a book", "他想买一本书"),
        (clause("he", "have", "state", BOOK, negative=True), "he does not have a book", "他没有书"),
        (clause("he", "buy", "future", BOOK, receiver=("for", somebody("she"))), "he will buy a book for her",
         "他会给她买一本书"),
        (clause("he", "watch", "past", BOOK, companion=somebody("she")), "he watched a book with her",
         "他和她一起看了一本书"),
        (clause("he", "swim", "can", negative=True), "he cannot swim", "他不会游泳"),
        (clause("he", "buy", "already", BOOK, negative=True), "he has not bought a book yet", "他还没买书"),
    ],
)  # fmt: skip
def test_a_clause_in_both_languages(said: Clause, en: str, zh: str):
    assert (english(said), chinese(said)) == (en, zh)


ORDER = {  # what English has in a sentence of some kind -> what Chinese has, in its own order
    ("comparison", r"^[^?]* than "): "^.+比.+",
    ("comparison", "^[^?]*not as "): "^.+没有.+",
    ("existence", "^There (is|are) [^n]"): "^.+(里|上|面|边)有",
    ("going", "by bus"): "坐公共汽车去",
    ("going", "^.+ yesterday"): "^.+昨天.*(去|吗)",
    ("doing", "^[^?]* yesterday"): "昨天.+",
    ("doing", "in the park"): "在公园里.",
    ("circumstances", "^Why"): "^.+为什么.+",
    ("what", "^What"): "什么",
    ("relative to a thing", " that "): "的",
    ("relative to a person", " who "): "正在.+的(学生|孩子|女孩|男孩|老师|医生|护士|司机)",
    ("being", "^(This|That) is not"): "^(这|那)不是.+的",
    ("giving", "^Please"): "^请给",
}


@pytest.mark.parametrize(("kind", "en"), ORDER, ids=lambda value: str(value))
def test_word_order_differs(drawn: list[Sentence], kind: str, en: str):
    found = [pair for pair in map(written, drawn) if pair.kind == kind and re.search(en, pair.en)]
    assert len(found) > 5
    for pair in found:
        assert re.search(ORDER[kind, en], pair.zh), pair


def test_a_few_hundred_words(drawn: list[Sentence]):
    english = {word for sentence in drawn for word in sentence.en.split()}
    characters = {character for sentence in drawn for character in sentence.zh}
    assert 350 < len(english) < 700 and 250 < len(characters) < 400


def test_neither_a_dictionary_nor_memory_translates(sides: tuple[list[Pair], list[Pair]]):
    train, test = sides
    assert word_for_word("I love you.") == "我爱你。"
    assert word_for_word("Tom reads these books.") == "汤姆看这些书。"
    dictionary = exact([word_for_word(pair.en) for pair in test], test)
    assert 0.03 < dictionary < 0.3  # it is a fair one, and is not enough
    nearest = Nearest(train)
    assert exact([nearest(pair.en) for pair in train[:50]], train[:50]) == 1.0
    assert exact([nearest(pair.en) for pair in test], test) < 0.3


def test_the_sentences_that_are_shown_were_not_learnt(sides: tuple[list[Pair], list[Pair]]):
    learnt = {bare(pair.en) for pair in sides[0]}
    assert not learnt & {bare(english) for english in SHOWN}
