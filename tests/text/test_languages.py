"""Tokenizers that say a text's language: ids of the reference library's, and another language than the usual."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from sentencepiece import SentencePieceProcessor

from plait.text import Tokenizer, TokenizerError, load_tokenizer
from tests.text import making

TEXTS = ["The quick brown fox", "what did she say?  She said: hello", "Ω unknown", ">>fra<< the Moon", "", "a"]


def loaded(folder: Path, usual: str | None = None) -> Tokenizer:
    tokenizer = load_tokenizer(folder, usual)
    assert tokenizer is not None
    return tokenizer


def m2m_folder(folder: Path, languages: list[str]) -> Path:
    model = making.sentencepiece_model("unigram")
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    processor = SentencePieceProcessor(model_proto=model)
    pieces = [processor.IdToPiece(i) for i in range(processor.GetPieceSize())]
    names = dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", *pieces[3:]])
    making.write_json(folder, "vocab.json", {name: id for id, name in enumerate(names)})
    making.write_json(folder, "tokenizer_config.json", {"tokenizer_class": "M2M100Tokenizer"})
    making.write_json(folder, "special_tokens_map.json", {"additional_special_tokens": languages})
    return folder


def test_m2m_100(reference: ModuleType, tmp_path: Path) -> None:
    codes = reference.models.m2m_100.tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]
    folder = m2m_folder(tmp_path, [f"__{code}__" for code in codes])
    ours, theirs = loaded(folder), reference.M2M100Tokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text), text
        if "Ω" not in text:  # around an unknown piece the reference drops a space
            plain = theirs.encode(text, add_special_tokens=False)
            assert ours.decode(ours.encode(text, specials=False)).strip() == theirs.decode(plain)
    theirs.src_lang = "fr"
    french = ours.speaking("__fr__")
    assert french.encode("the Moon") == theirs.encode("the Moon") != ours.encode("the Moon")
    assert french.id("__ro__") == theirs.get_lang_id("ro")
    assert ours.decode(ours.encode("the Moon"), skip_specials=True) == "the Moon"

    theirs.save_pretrained(tmp_path / "version5")
    again = loaded(tmp_path / "version5")
    assert again.encode("the Moon") == theirs.encode("the Moon"), "src_lang is in its config"
    (tmp_path / "saved").mkdir()
    ours.save(tmp_path / "saved")
    assert {path.name for path in (tmp_path / "saved").iterdir()} >= {"vocab.json", "sentencepiece.bpe.model"}


@pytest.mark.parametrize("kind", ["MBart50Tokenizer", "MBartTokenizer", "NllbTokenizer", "XLMRobertaTokenizer"])
def test_fairseqs_numbers(kind: str, tmp_path: Path) -> None:
    """<s> <pad> </s> <unk>, the model's pieces one later, the languages, the mask (fairseq's table, as published)."""
    model = making.sentencepiece_model("unigram")
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model)
    codes = ["ar_AR", "en_XX", "fr_XX"] if kind.startswith("MBart") else ["eng_Latn", "fra_Latn"]
    config = {"tokenizer_class": kind}
    if kind != "XLMRobertaTokenizer":
        config["additional_special_tokens"] = codes
    making.write_json(tmp_path, "tokenizer_config.json", config)
    ours, processor = loaded(tmp_path), SentencePieceProcessor(model_proto=model)
    pieces = processor.GetPieceSize()
    text = "The quick brown fox jumps over the lazy dog."
    assert ours.encode(text, specials=False) == [id + 1 for id in processor.EncodeAsIds(text)]
    assert [ours.id(name) for name in ("<s>", "<pad>", "</s>", "<unk>")] == [0, 1, 2, 3]
    if kind == "XLMRobertaTokenizer":
        assert ours.id("<mask>") == pieces + 1 and (ours.prefix, ours.suffix) == ((0,), (2,))
        with pytest.raises(TokenizerError, match="the code of no language"):
            ours.speaking("fr_XX")
        return
    assert [ours.id(code) for code in codes] == [pieces + 1 + i for i in range(len(codes))]
    assert ours.id("<mask>") == pieces + 1 + len(codes)
    english, other = next(code for code in codes if code.startswith("en")), codes[-1]
    around = ((), (2, ours.id(english))) if kind == "MBartTokenizer" else ((ours.id(english),), (2,))
    assert (ours.prefix, ours.suffix) == around
    assert ours.id(other) in ours.speaking(other).encode("a") and ours.id(english) not in ours.speaking(other).encode(
        "a"
    )
    with pytest.raises(TokenizerError, match=f"'xx_XX' is not the code of one; it has '{english}' now"):
        ours.speaking("xx_XX")


def test_pegasus_counts_from_103(tmp_path: Path) -> None:
    model = making.sentencepiece_model("unigram")
    (tmp_path / "spiece.model").write_bytes(model)
    making.write_json(tmp_path, "tokenizer_config.json", {"tokenizer_class": "PegasusTokenizer"})
    ours, processor = loaded(tmp_path), SentencePieceProcessor(model_proto=model)
    assert ours.encode("the Moon") == [id + 103 for id in processor.EncodeAsIds("the Moon")] + [1]
    assert [ours.id(n) for n in ("<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk_2>", "<unk>")] == [0, 1, 2, 3, 4, 105]


def test_a_tokenizer_json_that_puts_a_language_around(tmp_path: Path) -> None:
    """NLLB's and mBART's own files."""
    state = json.loads(making.unigram())
    codes = ["eng_Latn", "fra_Latn"]
    start = len(state["model"]["vocab"])
    state["added_tokens"] += [
        {"id": start + i, "content": code, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for i, code in enumerate(codes)
    ]
    state["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": codes[0], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {codes[0]: {"id": codes[0], "ids": [start], "tokens": [codes[0]]}},
    }
    ours = loaded(making.tokenizer_folder(tmp_path, json.dumps(state)))
    assert ours.encode("the Moon")[0] == start
    assert ours.speaking("fra_Latn").encode("the Moon") == [start + 1, *ours.encode("the Moon", specials=False)]
    with pytest.raises(TokenizerError, match="'the' is not the code"):
        ours.speaking("the")


@pytest.mark.parametrize("model", [b"", b"junk", b"\xff" * 40])
@pytest.mark.parametrize("kind", ["XLMRobertaTokenizer", "PegasusTokenizer", "LlamaTokenizer", "M2M100Tokenizer"])
def test_a_sentencepiece_model_that_is_none(kind: str, model: bytes, tmp_path: Path) -> None:
    if kind == "M2M100Tokenizer":
        m2m_folder(tmp_path, ["__en__"])
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model)
    making.write_json(tmp_path, "tokenizer_config.json", {"tokenizer_class": kind, "chat_template": "<s>"})
    with pytest.raises(TokenizerError, match="the model cannot be read"):
        load_tokenizer(tmp_path)


def test_ids_of_an_m2m_vocabulary(tmp_path: Path) -> None:
    folder = m2m_folder(tmp_path, ["__en__", "__fr__"])
    vocab = json.loads((folder / "vocab.json").read_text("utf-8"))
    for id, message in ((-1, "from 0 to below"), (10**9, "from 0 to below"), (0, "'<s>' and 'x' both have the id 0")):
        making.write_json(folder, "vocab.json", {**vocab, "x": id})
        with pytest.raises(TokenizerError, match=message):
            load_tokenizer(folder)
    making.write_json(folder, "vocab.json", vocab)
    making.write_json(folder, "added_tokens.json", {"__fr__": len(vocab)})
    with pytest.raises(TokenizerError, match="'__en__' and '__fr__' both have one id"):
        load_tokenizer(folder)


def test_a_kind_that_needs_an_unknown_token_says_so(tmp_path: Path) -> None:
    folder = m2m_folder(tmp_path, ["__en__"])
    making.write_json(folder, "tokenizer_config.json", {"tokenizer_class": "M2M100Tokenizer", "unk_token": None})
    with pytest.raises(TokenizerError, match="unk_token is None"):
        load_tokenizer(folder)


def test_languages_that_are_not_listed_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="list no languages"):
        loaded(m2m_folder(tmp_path, []))
    with pytest.raises(TokenizerError, match="src_lang 'en' is none of the languages"):
        loaded(m2m_folder(tmp_path, ["__fr__"]))
