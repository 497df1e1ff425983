"""Streamed text is decoded text (law 7), in whole characters."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.text import Detokenizer, Tokenizer

# One byte an id.
WORDS = {"ď": 2, "각": 3, "👍🏽": 8, "🇫🇷": 8, "👨\u200d👩\u200d👧\u200d👦": 25}


def bytewise() -> Detokenizer:
    return Detokenizer(lambda id, first: bytes([id]))


def streamed(detokenizer: Detokenizer, ids: list[int]) -> list[str]:
    return [*(detokenizer.push(id) for id in ids), detokenizer.flush()]


@pytest.mark.parametrize(("text", "length"), WORDS.items())
def test_tk6_characters_split_over_tokens_are_whole(text: str, length: int) -> None:
    ids = list(text.encode())
    assert len(ids) == length
    deltas = streamed(bytewise(), ids)
    assert "".join(deltas) == text
    assert not any("\ufffd" in delta for delta in deltas)


def test_tk6_with_vocabularies_that_fall_back_to_bytes(tokenizers: dict[str, Tokenizer]) -> None:
    text = "a " + "".join(WORDS) + " b"
    for kind in ("byte-level", "metaspace", "llama", "gguf-gpt2", "gguf-llama"):
        t = tokenizers[kind]
        ids = t.encode(text, specials=False)
        assert len(ids) > 40, kind
        deltas = streamed(t.stream(), ids)
        assert "".join(deltas) == t.decode(ids) == text, kind
        assert not any("\ufffd" in delta for delta in deltas), kind


def test_tk7_nothing_is_sent_twice(tokenizers: dict[str, Tokenizer]) -> None:
    for kind in ("byte-level", "metaspace", "llama", "gguf-gpt2", "gguf-llama"):
        t = tokenizers[kind]
        ids = t.encode("A 世ab", specials=False)
        stream, sent = t.stream(), ""
        for count, id in enumerate(ids, 1):
            sent += stream.push(id)
            assert "A 世ab".startswith(sent), (kind, count, sent)
            assert t.decode(ids[:count]).startswith(sent), (kind, count, sent)
        assert sent + stream.flush() == "A 世ab", kind


def test_tk9_bytes_that_never_complete_are_flushed() -> None:
    assert streamed(bytewise(), [0x80]) == ["\ufffd", ""]
    assert streamed(bytewise(), [0xE4, *b"abc"]) == ["", "\ufffda", "b", "c", ""]
    assert streamed(bytewise(), [0xF0, 0x9F]) == ["", "", "\ufffd"]
    assert streamed(bytewise(), [0xF0, 0x9F, 0x91, 0x41]) == ["", "", "", "\ufffdA", ""]
    for ids in ([0xFF] * 9, [0xC0] * 9, [0xF5] * 9, [0xF0] * 9, [0xE4] * 9, [0x80] * 9):
        for count in range(4, len(ids)):
            assert "".join(streamed(bytewise(), ids)[:count]), ids


@given(ids=st.lists(st.integers(0, 10**6), max_size=30), cuts=st.sets(st.integers(0, 30)), data=st.data())
def test_streamed_is_decoded_for_any_ids_and_chunks(
    tokenizers: dict[str, Tokenizer], ids: list[int], cuts: set[int], data: st.DataObject
) -> None:
    skip, continues = data.draw(st.booleans()), data.draw(st.booleans())
    for kind, t in tokenizers.items():
        known = [id % len(t) for id in ids]
        stream = t.stream(skip_specials=skip, continues=continues)
        edges = [0, *sorted(cut for cut in cuts if cut < len(known)), len(known)]
        text = ""
        for start, end in zip(edges, edges[1:], strict=False):
            text += stream.push(*known[start:end])
        assert text + stream.flush() == t.decode(known, skip, continues=continues), kind


@given(ids=st.lists(st.integers(0, 255), max_size=24))
def test_any_bytes_stream_as_they_decode(ids: list[int]) -> None:
    assert "".join(streamed(bytewise(), ids)) == bytes(ids).decode("utf-8", "replace")


def test_a_token_costs_the_same_late_as_early() -> None:
    stream, ids = bytewise(), list("각 word ".encode())
    stream.push(*ids * 2)

    def seconds(repeats: int) -> float:
        start = time.thread_time()
        for _ in range(repeats):
            for id in ids:
                stream.push(id)
        return time.thread_time() - start

    early = min(seconds(200) for _ in range(5))
    stream.push(*ids * 20_000)
    assert min(seconds(200) for _ in range(5)) < 5 * early + 0.005
