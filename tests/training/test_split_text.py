"""The end of a text that is held out has its own bytes, whatever cuts it; bits a byte are of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait.data.store import tokenised
from plait.text import train_tokenizer
from plait.training.split_text import spelled, split_text
from tests.training.standing_in import ENGLISH, sentences

TEXTS = [f"{text}, naïve 北京\n" for text in sentences(ENGLISH, 60)]


@pytest.mark.parametrize("kind", ["byte-bpe", "bpe", "unigram", "characters", "bytes", "alphabet"])
def test_the_parts_have_the_bytes_of_their_text(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.training.split_text.CHUNK", 50)
    tokenizer = train_tokenizer(TEXTS, kind=kind, vocab_size=600, min_frequency=1)
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    tokens = tokenised(tmp_path / "text.jsonl", tokenizer, cache=tmp_path)
    train, valid = split_text(tokens, 0.2, tokenizer)
    kept = [tokenizer.decode(part.read(0, len(part)), skip_specials=True) for part in (train, valid)]
    assert "".join(kept) == "".join(TEXTS)
    assert [part.counts["bytes"] for part in (train, valid)] == [len(text.encode()) for text in kept]
    assert spelled(tokens, tokenizer) == len("".join(TEXTS).encode())
    assert 0.15 < valid.counts["bytes"] / tokens.counts["bytes"] < 0.25
