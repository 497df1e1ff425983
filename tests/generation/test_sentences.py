"""Sentences: where they end, and parts that fit and join to the whole, whatever the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.generation import GenerationError
from plait.generation.sentences import fit, is_blank, joined, sentences


@pytest.mark.parametrize(
    "pieces",
    [
        ["One. ", "Two! ", "Three? ", "Four."],
        ["Dr. J. Smith met Mr. Li. ", "He left."],
        ["It costs 3.50 or so, e.g. here. ", '"Really?" ', "Yes..."],
        ["我喜欢绿茶。", "你呢？", "“好！”", "走吧。"],
        ["यह घर है। ", "वह गया।"],
        ["Was? ", "Nein."],
        ["a man . a woman ."],  # in lower case nobody knows
        [""],
        ["..."],
    ],
)
def test_where_sentences_end(pieces: list[str]) -> None:
    assert sentences("".join(pieces)) == pieces


@given(st.text(st.sampled_from("ab .,!?。， \u0301\u200d茶"), max_size=60), st.integers(3, 20))
def test_parts_fit_and_join_to_the_text(text: str, longest: int) -> None:
    parts = fit(text, lambda part: len(part) + 1, longest)
    assert "".join(parts) == text and all(len(part) + 1 <= longest for part in parts)


def test_cuts_are_behind_sentences_then_clauses_then_words_then_characters() -> None:
    def length(part: str) -> int:
        return len(part.strip())

    assert fit("Aaa bb. Cc dd. Ee.", length, 8) == ["Aaa bb. ", "Cc dd. ", "Ee."]
    assert fit("Aaa bb. Cc dd. Ee.", length, 14) == ["Aaa bb. Cc dd. ", "Ee."]
    assert fit("Aaa bb, cc dd; ee.", length, 8) == ["Aaa bb, ", "cc dd; ", "ee."]
    assert fit("Aaa bb cc", length, 6) == ["Aaa bb ", "cc"]
    assert fit("abcdefgh", length, 3) == ["abc", "def", "gh"]
    assert fit("abe\u0301cd", length, 3) == ["ab", "e\u0301c", "d"]  # no accent without its letter
    with pytest.raises(GenerationError, match="longest: 1 tokens do not hold 'a'"):
        fit("ab", lambda part: 1 + len(part), 1)


def test_seams_have_a_space_but_between_characters_of_scripts_without() -> None:
    assert joined([" One. ", "", "Two."]) == "One. Two."
    assert joined(["我喜欢。", "你呢？"]) == "我喜欢。你呢？"
    assert joined([]) == ""


def test_blank_is_what_cannot_be_seen() -> None:
    assert all(map(is_blank, ["", " \t", "\u3000\u00a0", "\ufeff\u200b", "\x0c"])) and not is_blank(" .")
