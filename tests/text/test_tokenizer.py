"""Encoding and decoding, the same promises for every kind of vocabulary."""

from __future__ import annotations

import dataclasses
import random
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from plait.text import Tokenizer, TokenizerError, load_tokenizer, tokenizer_from_gguf
from plait.text.library import LibrarySegmenter, specials_of
from tests.text import making

ROUND = ("byte-level", "metaspace", "llama", "gguf-gpt2", "gguf-llama")  # what they decode is what was encoded


def test_specials_go_around_a_text_once(tokenizers: dict[str, Tokenizer]) -> None:
    around = {kind: (t.prefix, t.suffix) for kind, t in tokenizers.items()}
    assert around == {
        "byte-level": ((), ()),
        "wordpiece": ((2,), (3,)),
        "metaspace": ((1,), ()),
        "unigram": ((), (1,)),
        "llama": ((1,), ()),
        "t5": ((), (1,)),
        "gguf-gpt2": ((), ()),
        "gguf-llama": ((1,), ()),
    }
    for t in tokenizers.values():
        assert t.encode("hello there") == [*t.prefix, *t.encode("hello there", specials=False), *t.suffix]
        assert not t.special_ids & set(t.encode("hello there", specials=False)) - {t.unk}


def test_ids_are_those_of_the_library() -> None:
    for state in (making.byte_level(), making.word_piece(), making.metaspace(), making.unigram()):
        library = Library.from_str(state)
        library.no_truncation()
        library.no_padding()
        segmenter = LibrarySegmenter(Library.from_str(state))
        before, after = specials_of(library)
        text = making.TEXT + " naïve 世界 👍🏽"
        assert [*before, *segmenter.segment(text), *after] == library.encode(text).ids


@pytest.mark.parametrize("text", ["hello !", "a , b", "do n't", "we 've a . b ?"])
def test_tk4_decode_cleans_nothing_up(tokenizers: dict[str, Tokenizer], text: str) -> None:
    for kind in (*ROUND, "unigram", "t5"):
        t = tokenizers[kind]
        assert t.decode(t.encode(text, specials=False)) == text, kind
    wordpiece = tokenizers["wordpiece"]
    spaced = {"hello !": "hello !", "a , b": "a , b", "do n't": "do n ' t", "we 've a . b ?": "we ' ve a . b ?"}
    assert wordpiece.decode(wordpiece.encode(text, specials=False)) == spaced[text]


def test_tk5_no_space_is_gained(tokenizers: dict[str, Tokenizer]) -> None:
    text = "Once upon a time, there was a town"
    for kind in (*ROUND, "unigram", "t5"):
        t = tokenizers[kind]
        ids = t.encode(text, specials=False)
        assert t.decode(ids) == text, kind
        for cut in range(1, len(ids)):
            begun, rest = t.decode(ids[:cut]), t.decode(ids[cut:], continues=True)
            assert begun + rest == text, (kind, cut)
            assert t.decode(ids[cut:]) in (rest, rest.removeprefix(" ")), (kind, cut)


@pytest.mark.parametrize("text", ["각", "e\u0301cole 한국어", "\u1100\u1161\u11a8"])
def test_tk10_normalisation_is_the_references(tokenizers: dict[str, Tokenizer], text: str) -> None:
    composed, decomposed = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    state = making.byte_level()
    gpt2 = tokenizers["byte-level"]
    for form in (composed, decomposed):
        assert gpt2.encode(form) == Library.from_str(state).encode(form).ids
        assert gpt2.decode(gpt2.encode(form)) == form
    assert gpt2.encode("각") != gpt2.encode("\u1100\u1161\u11a8")  # GPT-2 composes nothing: 3 bytes against 9
    qwen = tokenizer_from_gguf(making.gguf_byte_level(state, **{"ggml.pre": "qwen2"}))
    assert qwen.encode(decomposed) == qwen.encode(composed)  # Qwen2's normaliser is NFC
    assert qwen.decode(qwen.encode(decomposed)) == composed


def test_tk12_a_lone_surrogate_is_refused_in_words(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"position 1 .*U\+D83C"):
        tokenizer.encode("a\ud83c")
    with pytest.raises(TokenizerError):
        tokenizer.encode("\udc00", control=False)
    with pytest.raises(TypeError, match="bytes"):
        tokenizer.encode(b"a")  # type: ignore[arg-type]


def test_tk14_empty_text_is_the_specials_or_no_ids(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("")
    assert ids == [*tokenizer.prefix, *tokenizer.suffix]
    assert tokenizer.encode("", specials=False) == []
    assert all(type(id) is int for id in [*ids, *tokenizer.encode("a")])
    assert tokenizer.decode([]) == ""


def test_tk15_empty_text_has_a_bos_to_start_from_where_the_vocabulary_adds_one(
    tokenizers: dict[str, Tokenizer],
) -> None:
    for kind in ("metaspace", "llama", "gguf-llama"):
        t = tokenizers[kind]
        assert t.encode("") == [t.bos] == [1]
    assert tokenizers["byte-level"].encode("") == []
    assert tokenizers["byte-level"].encode(" ") != []


@pytest.mark.parametrize("unit", ["a", "letters", "a ", "世", "\n"])
def test_tk16_long_text_without_spaces_takes_linear_time(tokenizers: dict[str, Tokenizer], unit: str) -> None:
    def text(length: int) -> str:
        if unit == "letters":
            return "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz", k=length))
        return unit * (length // len(unit))

    def seconds(t: Tokenizer, text: str) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            t.encode(text)
            best = min(best, time.thread_time() - start)
        return best

    for kind, t in tokenizers.items():
        # Four times the text: linear is 4, quadratic 16. Time of this thread alone, best of three.
        short, long = seconds(t, text(10_000)), seconds(t, text(40_000))
        assert long < 9 * short + 0.02, (kind, short, long)


def test_control_strings_of_a_raw_prompt_are_parsed_unless_told_not_to(tokenizers: dict[str, Tokenizer]) -> None:
    cases = {"byte-level": "<|im_end|>", "metaspace": "</s>", "unigram": "</s>", "llama": "</s>", "t5": "</s>"}
    cases |= {"gguf-gpt2": "<|im_end|>", "gguf-llama": "</s>", "wordpiece": "[SEP]"}
    for kind, string in cases.items():
        t = tokenizers[kind]
        id = t.id(string)
        parsed = t.encode(f"hello{string} there", specials=False)
        plain = t.encode(f"hello{string} there", specials=False, control=False)
        assert parsed.count(id) == 1, kind
        assert id not in plain, kind
        if kind in ROUND:
            assert t.decode(plain) == f"hello{string} there"
        assert t.encode("hello there", control=False) == t.encode("hello there")


def test_ids_that_are_none_are_refused(tokenizer: Tokenizer) -> None:
    for id in (len(tokenizer), -1, 10**9):
        with pytest.raises(TokenizerError, match=f"id {id} is not in this vocabulary"):
            tokenizer.decode([id])
        with pytest.raises(TokenizerError, match=f"id {id}"):
            tokenizer.stream().push(id)
        with pytest.raises(TokenizerError, match=f"id {id}"):
            tokenizer.token(id)
    assert tokenizer.id(tokenizer.token(4)) == 4
    assert tokenizer.id("no such token") is None


def test_specials_are_shown_unless_skipped(tokenizers: dict[str, Tokenizer]) -> None:
    for kind, shown in {"metaspace": "<s> hello", "llama": "<s> hello", "byte-level": "hello"}.items():
        t = tokenizers[kind]
        assert t.decode(t.encode("hello")) == shown
        assert t.decode(t.encode("hello"), skip_specials=True) == "hello"
    wordpiece = tokenizers["wordpiece"]
    assert wordpiece.decode(wordpiece.encode("hello")) == "[CLS] hello [SEP]"
    assert wordpiece.decode(wordpiece.encode("hello"), skip_specials=True) == "hello"


def test_tk1_tk2_the_tokenizers_own_setting_is_left_alone(tokenizers: dict[str, Tokenizer]) -> None:
    t = tokenizers["metaspace"]
    none = dataclasses.replace(t, prefix=())
    assert t.encode("hello").count(1) == 1
    assert none.encode("hello").count(1) == 0
    # Nothing is de-duplicated behind the caller's back: what a raw prompt spells is there, as in the reference.
    assert t.encode("<s>hello").count(1) == 2
    assert t.encode("<s>hello", specials=False).count(1) == 1
    assert t.encode("<s>hello", control=False).count(1) == 1


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_byte_level_text_survives(tokenizers: dict[str, Tokenizer], text: str) -> None:
    for kind in ("byte-level", "gguf-gpt2"):
        t = tokenizers[kind]
        assert t.decode(t.encode(text)) == text
        assert t.decode(t.encode(text, control=False)) == text


def test_a_folder_without_a_tokenizer_has_none(tmp_path) -> None:
    assert load_tokenizer(tmp_path) is None


@pytest.mark.parametrize("specials", [True, False])
@pytest.mark.parametrize("control", [True, False])
def test_a_batch_of_texts_is_each_of_them_alone(tokenizer: Tokenizer, specials: bool, control: bool) -> None:
    names = list(tokenizer.segmenter.control)
    texts = ["hello world", "", f"it spells {names[0]} and {names[-1]}.", " naïve\n\n 3"]
    for batch in (texts, texts[:2], []):
        alone = [tokenizer.encode(text, specials, control=control) for text in batch]
        assert tokenizer.encode_batch(batch, specials, control=control) == alone
    with pytest.raises(TokenizerError, match="surrogate"):
        tokenizer.encode_batch(["a", "a\ud83c"])
