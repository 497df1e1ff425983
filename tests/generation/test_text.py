"""Streamed text with real vocabularies: joined pieces are the generation's text, and the text is the true one."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.generation import Generation, generate, stream
from plait.text import Tokenizer, load_tokenizer
from tests.generation.making import ROPE, checkpoint, saying

TEXT = "Hello 각 👩‍👩‍👧, naïve END of"


def check(tokenizer: Tokenizer, prompt: str, continuation: str, **options: object) -> Generation:
    """A model that writes ``continuation`` behind ``prompt``."""
    read = tokenizer.encode(prompt, specials=False)
    whole = tokenizer.encode(prompt + continuation, specials=False)
    assert whole[: len(read)] == read, "choose a prompt that ends where a token does"
    model = checkpoint(
        saying(whole[len(read) :], len(read), ROPE.replace(vocab_size=len(tokenizer), max_length=256)),
        tokenizer=tokenizer,
    )
    options = {"max_new_tokens": len(whole) - len(read), **options}
    done = generate(model, read, **options)  # type: ignore[arg-type]
    assert "".join(piece.text for piece in stream(model, read, **options)) == done.text  # type: ignore[arg-type]
    return done


@pytest.fixture
def byte_level(data: Path) -> Tokenizer:
    tokenizer = load_tokenizer(data / "tokenizers" / "gpt2")
    assert tokenizer is not None
    return tokenizer


@pytest.fixture
def metaspace(tmp_path: Path) -> Tokenizer:
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers

    words = ["<unk>", "▁the", "▁end", "▁of", "▁it", "s", "▁", *"ehtndofi"]
    library = Library(models.Unigram([(word, -1.0 - 4.0 * (len(word) == 1)) for word in words], unk_id=0))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer is not None
    return tokenizer


def test_streamed_text_is_the_decoded_text(byte_level: Tokenizer) -> None:
    assert check(byte_level, "Say", " " + TEXT).text == " " + TEXT
    done = check(byte_level, "Say", " " + TEXT, stop=["👧, na", "never"])
    assert (done.text, done.finish) == (" Hello 각 👩‍👩‍", "stop")
    cut = check(byte_level, "Say", " " + TEXT, max_new_tokens=3)
    assert cut.text == byte_level.decode(cut.tokens)


def test_ge21_two_stops_on_the_true_text_of_a_metaspace_vocabulary(metaspace: Tokenizer) -> None:
    assert check(metaspace, "the", " end of its").text == " end of its"
    assert check(metaspace, "the", " end of its", stop=["f its", "endof"]).text == " end o"
    assert check(metaspace, "the", " end of its", stop=["d of", " of it"]).text == " en"
    assert check(metaspace, "the", " end of its", stop=["ofit", "theend"]).finish == "length"
