"""BLEU and chrF: worked examples, the tokenizer that a language needs, and what is refused."""

from __future__ import annotations

import math

import pytest

from plait.training.quality import (
    QualityError,
    bleu,
    chrf,
    is_tokenised,
    plain_bleu,
    tokenizer_for,
    translation_quality,
)
from tests.generation.test_translate import translator

pytest.importorskip("sacrebleu", reason="sacrebleu is not installed: plait[evaluate] brings it")


def pieces(text: str, mark: str) -> str:
    """Words in pieces of four letters."""
    return " ".join(mark.join(word[i : i + 4] for i in range(0, len(word), 4)) for word in text.split())


def test_tl5_pieces_of_words_are_refused() -> None:
    hypothesis, reference = "the internationalisation of trade goes on", "the internationalization of trade goes on"
    words = bleu([hypothesis], [reference]).value
    assert words == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    for mark in ("@@ ", " ##"):
        with pytest.raises(QualityError, match="hypotheses: line 1 is made of pieces of words"):
            bleu([pieces(hypothesis, mark)], [pieces(reference, mark)])
    with pytest.raises(QualityError, match="references: line 1 is made of pieces"):
        chrf(["a b"], ["\u2581a \u2581b"])


def test_tl7_tokenised_against_plain_is_refused_and_both_alike_are_100() -> None:
    plain, tokenised = "Well, it's late, isn't it.", "Well , it 's late , isn 't it ."
    assert bleu([plain], [plain]).value == pytest.approx(100)
    assert bleu([tokenised], [tokenised]).value == plain_bleu([tokenised], [tokenised]).value == pytest.approx(100)
    for tokenize in ("13a", "none", None):
        with pytest.raises(QualityError, match="hypotheses: they are tokenised, .* the references are not"):
            bleu([tokenised], [plain], tokenize=tokenize)
        with pytest.raises(QualityError, match="references: they are tokenised"):
            bleu([plain], [tokenised], tokenize=tokenize)
    with pytest.raises(QualityError, match="hypotheses: they are tokenised"):
        plain_bleu([tokenised], [plain])
    assert (is_tokenised([plain]), is_tokenised([tokenised]), is_tokenised(["so"])) == (False, True, None)


def test_tl8_the_language_chooses_the_tokenizer_and_the_signature_says_it() -> None:
    green, red = "我喜欢绿茶。", "我喜欢红茶。"
    chosen = bleu([green], [red], language="zh")
    assert chosen.value == pytest.approx(38.0, abs=0.05) and "tok:zh" in chosen.signature and "tok:zh" in str(chosen)
    assert bleu([green], [red]).value == chosen.value, "its characters say what it is"
    wrong = bleu([green], [red], tokenize="13a")
    assert wrong.value == 0.0 and "tok:13a" in wrong.signature
    for code in ("zh", "zho_Hans", "zh_CN", "__zh__", "cmn"):
        assert tokenizer_for(["a"], code) == "zh"
    assert [tokenizer_for(["Gut, ja."], code) for code in ("de", "deu_Latn", None)] == ["13a"] * 3
    assert tokenizer_for(["緑茶が好きです。"]) == tokenizer_for(["a"], "ja") == "char"
    assert tokenizer_for(["ein mann , der lacht ."], "de") == "none"


def test_plain_bleu_is_the_product_of_precisions() -> None:
    """Papineni et al. 2002, by hand: 6 words for 7, matches 5 of 6, 3 of 5, 2 of 4, 1 of 3."""
    found = plain_bleu(["a man rides a horse ."], ["a man rides a big horse ."])
    assert found.value == pytest.approx(100 * math.exp(1 - 7 / 6) * (6 / 6 * 4 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    assert "tok:none|smooth:none" in found.signature
    assert plain_bleu(["a b c ."], ["d e f ."]).value == 0.0


def test_mistakes_are_named() -> None:
    with pytest.raises(QualityError, match="hypotheses: 1 lines for 2 references"):
        bleu(["a"], ["a", "b"])
    with pytest.raises(QualityError, match="references: there are none"):
        chrf([], [])
    with pytest.raises(QualityError, match="tokenize: sacrebleu has no '13b'; did you mean '13a'"):
        bleu(["a"], ["a"], tokenize="13b")


def test_a_models_translations_are_measured_as_text() -> None:
    checkpoint = translator()
    sources = ["a dog", "", "the cat"]
    with pytest.warns(UserWarning):
        _, found = translation_quality(checkpoint, sources, ["x", "", "y"])
    with pytest.warns(UserWarning):
        measured, again = translation_quality(checkpoint, sources, [one.text or "." for one in found], beams=1)
    assert [one.text for one in again] == [one.text for one in found]
    assert measured["chrf"].value > 60 and set(measured) == {"bleu", "chrf"}
    with pytest.raises(QualityError, match="metrics: 'ter' is not one of bleu, chrf"):
        translation_quality(checkpoint, sources, sources, metrics=["ter"])
