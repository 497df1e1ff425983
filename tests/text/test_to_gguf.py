"""A tokenizer as GGUF's metadata: read back it cuts texts the same; what llama.cpp would cut otherwise is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, pre_tokenizers
from tokenizers import Tokenizer as Library

from plait.text import (
    KINDS,
    Tokenizer,
    TokenizerError,
    load_tokenizer,
    tokenizer_from_gguf,
    tokenizer_to_gguf,
    train_tokenizer,
)
from plait.text.byte_level import PRE_TOKENIZERS, byte_level
from plait.text.to_gguf import leads_otherwise
from tests.text import making

TEXTS = [
    "", "hello", " two  spaces", "I'm 1969 years old", "naïve café", "日本語 text", "a\n\n\tb", "x<|im_end|>y </s> <s>",
    *making.TEXT.splitlines(),
]  # fmt: skip


def made(kind: str, folder: Path) -> Tokenizer:
    if kind == "byte-level":
        making.tokenizer_folder(folder, making.byte_level(), eos_token="<|im_end|>", chat_template=making.CHATML)
    elif kind == "word-piece":
        making.tokenizer_folder(folder, making.word_piece(), unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    elif kind == "pieces":
        (folder / "tokenizer.model").write_bytes(making.sentencepiece_model("bpe"))
    elif kind == "scored":
        making.tokenizer_folder(folder, making.scored_metaspace(), bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    tokenizer = load_tokenizer(folder)
    assert tokenizer is not None
    return tokenizer


@pytest.mark.parametrize("kind", ["byte-level", "word-piece", "pieces", "scored"])
def test_what_is_written_cuts_texts_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = made(kind, tmp_path)
    metadata = tokenizer_to_gguf(tokenizer, len(tokenizer) + 3)
    assert metadata["tokenizer.ggml.tokens"][-1] == f"[PAD{len(tokenizer) + 2}]"
    assert metadata["tokenizer.ggml.token_type"][-3:] == [5, 5, 5]
    back = tokenizer_from_gguf(metadata)
    plain = kind == "scored"  # its library puts a space behind control strings too, plait before a text alone
    for text in [text for text in TEXTS if not (plain and "<s>" in text)]:
        ids = tokenizer.encode(text)
        assert back.encode(text) == ids, text
        assert back.encode(text, control=False) == tokenizer.encode(text, control=False), text
        assert back.decode(ids) == tokenizer.decode(ids), text
    assert (back.named, back.prefix, back.suffix) == (tokenizer.named, tokenizer.prefix, tokenizer.suffix)
    assert (back.chat_template and back.chat_template.source) == (
        tokenizer.chat_template and tokenizer.chat_template.source
    )
    again, types = tokenizer_to_gguf(back, len(back)), "tokenizer.ggml.token_type"
    assert again[types][:-3] == metadata[types][:-3]
    assert again | {types: metadata[types]} == metadata


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_tk10_the_rule_that_cuts_text_has_its_name(name: str, tmp_path: Path) -> None:
    model = json.loads(making.byte_level())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    library = byte_level(model["vocab"], merges, PRE_TOKENIZERS[name])
    tokenizer = load_tokenizer(making.tokenizer_folder(tmp_path, library.to_str()))
    assert tokenizer is not None
    metadata = tokenizer_to_gguf(tokenizer, len(tokenizer))
    assert PRE_TOKENIZERS[metadata["tokenizer.ggml.pre"]] == PRE_TOKENIZERS[name]
    back = tokenizer_from_gguf(metadata)
    for text in TEXTS:
        assert back.encode(text) == tokenizer.encode(text), text


def test_roles_and_kinds_of_tokens_are_said(tmp_path: Path) -> None:
    metadata = tokenizer_to_gguf(made("pieces", tmp_path), 420)
    types = metadata["tokenizer.ggml.token_type"]
    assert types[:4] == [2, 3, 3, 6] and types[-1] == 1
    assert metadata["tokenizer.ggml.model"] == "llama" and metadata["tokenizer.ggml.add_space_prefix"] is True
    assert (metadata["tokenizer.ggml.bos_token_id"], metadata["tokenizer.ggml.add_bos_token"]) == (1, True)
    assert (metadata["tokenizer.ggml.eos_token_id"], metadata["tokenizer.ggml.add_eos_token"]) == (2, False)


def test_word_pieces_are_marked_as_llama_cpp_marks_them(tmp_path: Path) -> None:
    tokenizer = made("word-piece", tmp_path)
    metadata = tokenizer_to_gguf(tokenizer, len(tokenizer))
    tokens = metadata["tokenizer.ggml.tokens"]
    assert tokens[tokenizer.id("[CLS]")] == "[CLS]"
    assert tokens[tokenizer.id("the")] == "▁the"
    inner = next(token for id in range(len(tokenizer)) if (token := tokenizer.token(id)).startswith("##"))
    assert tokens[tokenizer.id(inner)] == inner.removeprefix("##")
    assert metadata["tokenizer.ggml.bos_token_id"] == tokenizer.named["cls"]
    assert metadata["tokenizer.ggml.seperator_token_id"] == tokenizer.named["sep"]
    assert metadata["tokenizer.ggml.normalizer.lowercase"] is True


def refused(folder: Path, state: str, message: str, size: int = 600, **config: Any) -> None:
    tokenizer = load_tokenizer(making.tokenizer_folder(folder, state, **config))
    assert tokenizer is not None
    with pytest.raises(TokenizerError, match=message) as error:
        tokenizer_to_gguf(tokenizer, size)
    assert "\n" not in str(error.value)


def test_what_llama_cpp_would_cut_otherwise_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, making.byte_level(), "has 400 ids and the model 399", size=399)
    refused(tmp_path, making.unigram(), "no model of the type 'Unigram'")
    never = json.loads(making.metaspace())
    never["pre_tokenizer"]["prepend_scheme"] = "never"
    refused(tmp_path, json.dumps(never), "merges are not those of a sentencepiece model")
    library = Library.from_str(making.byte_level())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\d{1,2}"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    refused(tmp_path, library.to_str(), "its rule for cutting text before the merges has no name")
    changed = json.loads(making.word_piece()) | {"pre_tokenizer": {"type": "Whitespace"}}
    refused(tmp_path, json.dumps(changed), "cuts text for a WordPiece as BERT does", unk_token="[UNK]")
    changed = json.loads(making.scored_metaspace())
    changed["normalizer"]["normalizers"].append({"type": "NFKC"})
    refused(tmp_path, json.dumps(changed), "its step NFKC is none that llama.cpp takes")
    changed = json.loads(making.scored_metaspace())
    merges: list[list[str]] = changed["model"]["merges"]
    made_twice = next(m for m in merges if sum(left + right == m[0] + m[1] for left, right in merges) > 1)
    merges.remove(made_twice)
    merges.insert(0, made_twice)  # one way to make a piece is now the first of all, another is not
    refused(tmp_path, json.dumps(changed), "merges are not those of a sentencepiece model", bos_token="<s>")
    library = Library.from_str(making.byte_level())
    library.add_tokens([AddedToken("<a>", special=True), AddedToken("<b>", special=True)])
    state = json.loads(library.to_str())
    ids = {name: library.token_to_id(name) for name in ("<a>", "<b>")}
    state["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<a>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in ids.items()},
    }
    refused(tmp_path, json.dumps(state), r"\(400,\) go before a text", bos_token="<b>")


def test_a_unigram_of_sentencepiece_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(making.sentencepiece_model("unigram"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer is not None
    with pytest.raises(TokenizerError, match="this one is a unigram"):
        tokenizer_to_gguf(tokenizer, 600)


ODD = [
    "", " ", "  ", " a", "  a  b ", "▁", "▁a ▁", "a▁b", "\t\n a\r\n", "\x00\x01\x7f\ufeff", "e\u0301 ﬁ Ａ", "##a ##",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7", "[a] <0x41>", "a" * 101,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_learnt_tokenizer_is_written_so_that_it_cuts_the_same_or_not_at_all(kind: str) -> None:
    tokenizer = train_tokenizer(making.TEXT.splitlines(keepends=True), kind=kind, vocab_size=500)
    refusals = {"bpe": "step Split", "unigram": "no model", "bytes": "has no name"}
    refusals |= dict.fromkeys(("characters", "alphabet"), "none of its steps")
    if kind in refusals:
        with pytest.raises(TokenizerError, match=refusals[kind]):
            tokenizer_to_gguf(tokenizer, len(tokenizer))
        return
    back = tokenizer_from_gguf(tokenizer_to_gguf(tokenizer, len(tokenizer)))
    for text in [*ODD, *TEXTS]:
        assert back.encode(text, control=False) == tokenizer.encode(text, control=False), text


@pytest.mark.parametrize("steps", ["prepend", "never", "gemma"])
def test_every_way_to_write_a_space_that_is_taken_cuts_odd_texts_the_same(steps: str, tmp_path: Path) -> None:
    state = json.loads(making.scored_metaspace())
    prepend, replace = state["normalizer"]["normalizers"]
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}
    if steps != "prepend":
        state |= {"normalizer": None, "pre_tokenizer": metaspace}
    if steps == "gemma":
        state |= {"normalizer": replace, "pre_tokenizer": split}
    tokenizer = load_tokenizer(making.tokenizer_folder(tmp_path, json.dumps(state), bos_token="<s>"))
    assert tokenizer is not None and prepend["type"] == "Prepend"
    back = tokenizer_from_gguf(tokenizer_to_gguf(tokenizer, len(tokenizer)))
    for text in ODD:
        assert back.encode(text, control=False) == tokenizer.encode(text, control=False), text


SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("kind", "path", "value", "message"),
    [
        ("scored", "normalizer", None, "none of its steps writes ▁"),
        ("scored", "normalizer", {"type": "Prepend", "prepend": "▁"}, "none of its steps writes ▁"),
        ("scored", "pre_tokenizer", SPACES, None),
        ("scored", "pre_tokenizer prepend_scheme", "first", None),
        ("scored", "pre_tokenizer prepend_scheme", "always", None),
        ("scored", "model byte_fallback", False, "byte_fallback is False, and llama.cpp cuts as with True"),
        ("scored", "model ignore_merges", True, "ignore_merges is True"),
        ("scored", "model end_of_word_suffix", "</w>", "end_of_word_suffix is '</w>'"),
        ("scored", "added_tokens 1 normalized", True, "'<s>' is looked for in normalized text"),
        ("byte-level", "model end_of_word_suffix", "</w>", "end_of_word_suffix is '</w>'"),
        ("byte-level", "model continuing_subword_prefix", "Ġ", "continuing_subword_prefix is 'Ġ'"),
        ("word-piece", "normalizer clean_text", False, "clean_text is False"),
        ("word-piece", "model max_input_chars_per_word", 99, "max_input_chars_per_word 99"),
        ("word-piece", "added_tokens 1 normalized", True, r"'\[UNK\]' is looked for in normalized text"),
        ("word-piece", "model vocab ##▁x", 300, "the piece '##▁x' cannot be told"),
    ],
)
def test_a_setting_that_gguf_cannot_say_is_refused(
    kind: str, path: str, value: Any, message: str | None, tmp_path: Path
) -> None:
    state = json.loads(
        {"scored": making.scored_metaspace, "byte-level": making.byte_level}.get(kind, making.word_piece)()
    )
    if "prepend_scheme" in path:
        state |= {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "split": False}}
    if "continuing_subword_prefix" in path:
        state["model"]["merges"] = []
    place = state
    *way, last = path.split()
    for key in way:
        place = place[int(key) if isinstance(place, list) else key]
    place[last] = value
    tokenizer = load_tokenizer(making.tokenizer_folder(tmp_path, json.dumps(state), bos_token="<s>"))
    assert tokenizer is not None
    if message is None:
        back = tokenizer_from_gguf(tokenizer_to_gguf(tokenizer, len(tokenizer)))
        assert back.encode("hello world") == tokenizer.encode("hello world")
        same = back.encode(" hello") == tokenizer.encode(" hello")
        assert same != leads_otherwise(tokenizer) == ("prepend_scheme" in path)
        return
    with pytest.raises(TokenizerError, match=message) as error:
        tokenizer_to_gguf(tokenizer, len(tokenizer))
    assert "\n" not in str(error.value)


def test_a_sentencepiece_model_without_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(making.sentencepiece_model("bpe", vocab_size=150, byte_fallback=False))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer is not None
    with pytest.raises(TokenizerError, match="has no token <0x00>"):
        tokenizer_to_gguf(tokenizer, len(tokenizer))


def test_a_filler_is_no_token_of_the_vocabularys() -> None:
    tokenizer = train_tokenizer(["a b c"] * 3, vocab_size=300, specials={"mask": "[PAD270]"})
    tokens = tokenizer_to_gguf(tokenizer, 280)["tokenizer.ggml.tokens"]
    assert len(set(tokens)) == 280 and "[PAD270_]" in tokens and tokens[-1] == "[PAD279]"
