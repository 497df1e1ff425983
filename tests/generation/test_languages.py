"""Languages: codes around what is read, and in front of what is written, as each kind of checkpoint wants them."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.checkpoint import DecodeRules
from plait.generation import GenerationError
from plait.generation.languages import between
from plait.text import Tokenizer, load_tokenizer
from tests.text import making


def tokenizer(folder: Path, kind: str, codes: list[str]) -> Tokenizer:
    (folder / "sentencepiece.bpe.model").write_bytes(making.sentencepiece_model("unigram"))
    making.write_json(folder, "tokenizer_config.json", {"tokenizer_class": kind, "additional_special_tokens": codes})
    found = load_tokenizer(folder)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "kind, codes, begins",
    [
        ("NllbTokenizer", ["eng_Latn", "fra_Latn", "ron_Latn"], False),
        ("MBart50Tokenizer", ["en_XX", "fr_XX", "ro_RO"], False),
    ]
    + [("MBartTokenizer", ["en_XX", "fr_XX", "ro_RO"], True)],
)
def test_codes_go_around_the_source_and_in_front_of_the_target(
    kind: str, codes: list[str], begins: bool, tmp_path: Path
) -> None:
    english = tokenizer(tmp_path, kind, codes)
    ids = [english.id(code) for code in codes]
    rules = DecodeRules(start=ids[0] if begins else 2, end=(2,))
    reader, told, before = between(english, rules, codes[1], codes[2])
    row = reader.encode("the Moon")
    assert ids[1] in (row[0], row[-1]) and ids[0] not in row and before == ""
    assert (told.start, told.forced_first) == ((ids[2], None) if begins else (2, ids[2]))
    assert between(english, told, None, None)[1] == told
    if not begins:
        with pytest.raises(GenerationError, match=f"is told none; give one .* as '{codes[0]}' is"):
            between(english, rules, None, None)
    for wrong in ("xx", "</s>", "the"):
        with pytest.raises(GenerationError, match=f"target_language: this tokenizer has no code '{wrong}'"):
            between(english, rules, None, wrong)
        with pytest.raises(GenerationError, match=f"source_language: this tokenizer has no code '{wrong}'"):
            between(english, rules, wrong, codes[2])


def test_m2m_100s_codes_need_no_underscores(tmp_path: Path) -> None:
    from tests.text.test_languages import m2m_folder

    found = load_tokenizer(m2m_folder(tmp_path, ["__en__", "__fr__", "__ro__"]))
    assert found is not None
    reader, rules, _ = between(found, DecodeRules(start=2), "fr", "__ro__")
    assert reader.encode("a")[0] == found.id("__fr__") and rules.forced_first == found.id("__ro__")


def test_a_marian_with_several_targets_reads_the_code(tmp_path: Path) -> None:
    model = making.sentencepiece_model("unigram")
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes(model)
    vocab = ["</s>", "<unk>", "<pad>", ">>fra<<", ">>ron<<", "\u2581the", "\u2581"]
    making.write_json(tmp_path, "vocab.json", {name: id for id, name in enumerate(vocab)})
    found = load_tokenizer(tmp_path)
    assert found is not None
    reader, rules, before = between(found, DecodeRules(start=2), None, "ron")
    assert reader.encode(before + "the", control=False)[0] == 4 and rules == DecodeRules(start=2)
    with pytest.raises(GenerationError, match="source_language: this tokenizer has no code 'eng'; it puts"):
        between(found, rules, "eng", None)
