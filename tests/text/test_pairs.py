"""Two texts in one row: the reference's ids and types, in every form that files and classes give them."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import processors

from plait.text import Tokenizer, TokenizerError, load_tokenizer, tokenizer_from_gguf
from plait.text.to_gguf import tokenizer_to_gguf
from tests.text import making
from tests.text.test_folder import byte_level_folder

# Not an empty second text, which the reference takes for none
PAIRS = [("The quick fox", "a lazy dog!"), ("hello", "hello"), ("", "x"), (" spaces ", " 12 naïve")]
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def same(ours: Tokenizer | None, theirs: Any) -> None:
    assert ours is not None
    for first, second in PAIRS:
        expected = theirs(first, second, return_token_type_ids=True)
        assert ours.encode_pair(first, second) == (expected["input_ids"], expected["token_type_ids"]), (first, second)


def bert_folder(folder: Path) -> Path:
    vocab = json.loads(making.word_piece())["model"]["vocab"]
    making.write_json(folder, "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    (folder / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.__getitem__)) + "\n", "utf-8")
    return folder


def test_bert_and_roberta_from_their_vocabularies(reference: ModuleType, tmp_path: Path) -> None:
    bert = bert_folder(tmp_path / "bert")
    same(load_tokenizer(bert), reference.BertTokenizer.from_pretrained(bert))
    roberta = byte_level_folder(tmp_path / "roberta", ROBERTA)
    same(load_tokenizer(roberta), reference.RobertaTokenizer.from_pretrained(roberta))


PROCESSORS = {
    "bert": processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
    "roberta": processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2), trim_offsets=False),
    "its own": processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $B:1 [SEP] $A:0 [MASK]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3), ("[MASK]", 4)],
    ),
    "behind another": processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="$A [SEP]", pair="$A [SEP] $B:1", special_tokens=[("[SEP]", 3)]),
        ]
    ),
}


@pytest.mark.parametrize("kind", PROCESSORS)
def test_a_tokenizer_json_says_its_own_form(kind: str, reference: ModuleType, tmp_path: Path) -> None:
    library = Library.from_str(making.word_piece())
    library.no_padding()
    library.no_truncation()
    library.post_processor = PROCESSORS[kind]
    folder = making.tokenizer_folder(tmp_path, library.to_str())
    same(load_tokenizer(folder), reference.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")))


def test_a_bert_in_gguf_keeps_its_form(tmp_path: Path) -> None:
    bert = load_tokenizer(bert_folder(tmp_path / "bert"))
    assert bert is not None
    from_gguf = tokenizer_from_gguf(tokenizer_to_gguf(bert, len(bert)))
    from_gguf.save(tmp_path / "saved")
    saved = load_tokenizer(tmp_path / "saved")
    assert saved is not None
    for pair in PAIRS:
        assert bert.encode_pair(*pair) == from_gguf.encode_pair(*pair) == saved.encode_pair(*pair)


def test_no_form_and_what_is_no_switch_are_refused(tmp_path: Path) -> None:
    plain = load_tokenizer(making.tokenizer_folder(tmp_path, making.byte_level()))
    assert plain is not None
    with pytest.raises(TokenizerError, match="encode_pair: this tokenizer has no form for two texts"):
        plain.encode_pair("a", "b")
    with pytest.raises(
        TokenizerError, match=r"specials: 'b' is neither True nor False; .* encode_pair\(first, second\)"
    ):
        plain.encode("a", "b")  # type: ignore[arg-type]
