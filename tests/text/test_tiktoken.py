"""Tiktoken's ranks, made here from GPT-2's own vocabulary, cut text as its merges do."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from plait.text import TokenizerError, load_tokenizer, train_tokenizer
from plait.text.spelling import byte_alphabet


def write_ranks(path: Path, vocab: dict[str, int]) -> None:
    alphabet = byte_alphabet()
    rows = sorted((rank, bytes(alphabet[c] for c in token)) for token, rank in vocab.items())
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in rows))


def small(tmp_path: Path) -> tuple[dict[str, int], object]:
    """A little vocabulary whose ids are ranks, as the library learns it."""
    text = ["low lower lowest newest widest don't 123 456\n"] * 9
    tokenizer = train_tokenizer(text, vocab_size=300, specials={"pad": "<z>", "bos": "<z>", "eos": "<z>"})
    state = json.loads(tokenizer.segmenter.library.to_str())["model"]["vocab"]
    return {token: id - 1 for token, id in state.items() if token != "<z>"}, tokenizer


def test_ranks_cut_as_merges_do(tmp_path: Path) -> None:
    vocab, learnt = small(tmp_path)
    write_ranks(tmp_path / "r50k_base.tiktoken", vocab)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer is not None
    for text in ("lowest newest", " don't\n\n 123x ", "é北 low"):
        expected = [id - 1 for id in learnt.encode(text, specials=False)]  # pyright: ignore
        assert tokenizer.encode(text, specials=False) == expected and tokenizer.decode(expected) == text
    assert tokenizer.encode("low<|endoftext|>")[-1] == 50256 == tokenizer.eos
    tokenizer.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again is not None and again.encode("lowest") == tokenizer.encode("lowest")


def test_gpt2(data: Path, tmp_path: Path) -> None:
    vocab = json.loads((data / "tokenizers/gpt2/vocab.json").read_text("utf-8"))
    write_ranks(tmp_path / "r50k_base.tiktoken", {t: i for t, i in vocab.items() if t != "<|endoftext|>"})
    ours, theirs = load_tokenizer(tmp_path), load_tokenizer(data / "tokenizers/gpt2")
    assert ours is not None and theirs is not None
    text = (data / "lm/wikitext2.valid.txt").read_text("utf-8")[:100_000]
    assert ours.encode(text) == theirs.encode(text)
    assert ours.encode("Hello world") == [15496, 995]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    vocab, _ = small(tmp_path)
    write_ranks(tmp_path / "mystery.tiktoken", vocab)
    with pytest.raises(TokenizerError, match="ranks do not say how text is cut.*r50k_base"):
        load_tokenizer(tmp_path)
    path = tmp_path / "mystery.tiktoken"
    path.rename(tmp_path / "cl100k_base.tiktoken")
    path = tmp_path / "cl100k_base.tiktoken"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(TokenizerError, match="the byte 0x21 has no rank"):
        load_tokenizer(tmp_path)
    path.write_bytes(b"IQ== 0\n!! 1\n")
    with pytest.raises(TokenizerError, match="line 2 is not a token"):
        load_tokenizer(tmp_path)


def test_a_line_that_cannot_stand_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r50k_base.tiktoken"
    bytes_ = [base64.b64encode(bytes([byte])) + b" %d" % byte for byte in range(256)]

    def refused(lines: list[bytes], match: str) -> None:
        path.write_bytes(b"\n".join(lines))
        with pytest.raises(TokenizerError, match=match) as error:
            load_tokenizer(tmp_path)
        assert "\n" not in str(error.value)

    refused([*bytes_, b"YWI= 255"], "line 257 has the rank 255 of line 256 again")
    refused([*bytes_, b"IQ== 256"], "line 257 has the token b'!' of line 34 again")
    refused([*bytes_, b"YWI= 50256"], r"line 257 has the rank 50256, which is the id of '<\|endoftext\|>'")
    refused([*bytes_, b"YWI= 300"], "line 257 has the rank 300, and 257 tokens and 1 special ones have none so high")
    refused([*bytes_, b"YWI= " + b"9" * 5000], "line 257 is not a token in base 64, of 1 to 1000 bytes")
    refused([*bytes_, b" 256"], "line 257 is not a token")
    refused([*bytes_, base64.b64encode(b"a" * 1001) + b" 256"], "line 257 is not a token")
    path.write_bytes(b"\n".join([*bytes_, base64.b64encode(b"a" * 1000) + b" 256"]))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer is not None and tokenizer.encode("a" * 1000) == [256]
