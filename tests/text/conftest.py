"""One tokenizer of each kind, for tests that hold for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.text import Tokenizer, load_tokenizer, tokenizer_from_gguf
from tests.text import making


def _made(kind: str, folder: Path) -> Tokenizer | None:
    if kind == "byte-level":
        return load_tokenizer(
            making.tokenizer_folder(folder, making.byte_level(), eos_token="<|im_end|>", chat_template=making.CHATML)
        )
    if kind == "wordpiece":
        return load_tokenizer(making.tokenizer_folder(folder, making.word_piece(), unk_token="[UNK]"))
    if kind == "metaspace":
        return load_tokenizer(making.tokenizer_folder(folder, making.metaspace(), bos_token="<s>", eos_token="</s>"))
    if kind == "unigram":
        return load_tokenizer(
            making.tokenizer_folder(folder, making.unigram(), eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
        )
    if kind == "llama":
        (folder / "tokenizer.model").write_bytes(making.sentencepiece_model("bpe"))
    elif kind == "t5":
        (folder / "spiece.model").write_bytes(making.sentencepiece_model("unigram"))
    elif kind == "gguf-gpt2":
        return tokenizer_from_gguf(making.gguf_byte_level(making.byte_level()))
    elif kind == "gguf-llama":
        return tokenizer_from_gguf(making.gguf_sentencepiece(making.sentencepiece_model("bpe")))
    return load_tokenizer(folder)


KINDS = ("byte-level", "wordpiece", "metaspace", "unigram", "llama", "t5", "gguf-gpt2", "gguf-llama")


@pytest.fixture(scope="session")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """One tokenizer of every kind."""
    made = {kind: _made(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}
    assert None not in made.values()
    return {kind: tokenizer for kind, tokenizer in made.items() if tokenizer is not None}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    """Each of them in turn."""
    return tokenizers[request.param]
