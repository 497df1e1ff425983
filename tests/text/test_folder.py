"""Folders of tokenizer files, of every kind, against the library that wrote them."""

from __future__ import annotations

import itertools
import json
import shutil
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from plait.text import Tokenizer, TokenizerError, load_tokenizer
from tests.text import making

TEXTS = [
    "",
    " ",
    "\n\t\n",
    "hello, world!",
    "The quick brown fox  jumps\tover\n\nthe lazy dog. ",
    "It's 1969; we'll say \"é\" and naïve: 世界 각 👍🏽 don't",
    "e\u0301 \u1100\u1161\u11a8 ﬁ Ⅳ Ａ\u00a0b\u200bc",
    "<s>x</s> [SEP] <|endoftext|><|im_end|> <mask> <extra_id_0>y",
]


def loaded(folder: Path) -> Tokenizer:
    tokenizer = load_tokenizer(folder)
    assert tokenizer is not None
    return tokenizer


def byte_level_folder(folder: Path, specials: tuple[str, ...], **config: Any) -> Path:
    """The same vocabulary as vocab.json and merges.txt."""
    model = json.loads(making.byte_level(specials))["model"]
    making.write_json(folder, "vocab.json", model["vocab"])
    lines = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return making.write_json(folder, "tokenizer_config.json", config)


def test_tk10_tk13_gpt2s_own_files_give_the_references_ids(data: Path, reference: ModuleType, tmp_path: Path) -> None:
    folder = data / "tokenizers" / "gpt2"
    ours = loaded(folder)
    theirs = reference.GPT2Tokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text), text
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text)), text
    assert (len(ours), ours.bos, ours.eos, ours.pad) == (50257, 50256, 50256, None)
    theirs.save_pretrained(tmp_path)
    again = loaded(tmp_path)
    assert all(again.encode(text) == ours.encode(text) for text in TEXTS)


def test_tk13_roberta_from_its_two_files(reference: ModuleType, tmp_path: Path) -> None:
    specials = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    ours = loaded(byte_level_folder(tmp_path, specials))
    theirs = reference.RobertaTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        if "<mask>" not in text:
            assert ours.encode(text) == theirs.encode(text), text
    assert ours.encode("a <mask>") == [0, *ours.encode("a", specials=False), 4, 2]  # as in roberta's tokenizer.json
    assert (ours.prefix, ours.suffix) == ((0,), (2,))
    assert ours.named == {"bos": 0, "eos": 2, "sep": 2, "cls": 0, "unk": 3, "pad": 1, "mask": 4}


def test_tk13_qwen2_from_its_files(reference: ModuleType, tmp_path: Path) -> None:
    added = {"400": {"content": "<|im_end|>", "special": True}, "401": {"content": "<tool>", "special": False}}
    config = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added, "eos_token": "<|im_end|>"}
    folder = byte_level_folder(tmp_path, ("<|endoftext|>",), **config, bos_token=None)
    ours, theirs = loaded(folder), reference.Qwen2Tokenizer.from_pretrained(folder)
    for text in [*TEXTS, "a<tool>b 12345"]:
        assert ours.encode(text) == theirs.encode(text), text
    assert (ours.bos, ours.eos, ours.pad, len(ours)) == (None, 400, 0, 402)
    assert ours.special_ids == {0, 400}


@pytest.mark.parametrize("lower", [True, False])
def test_tk13_bert_from_vocab_txt(lower: bool, reference: ModuleType, tmp_path: Path) -> None:
    vocab = json.loads(making.word_piece())["model"]["vocab"]
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.__getitem__)) + "\n", "utf-8")
    making.write_json(tmp_path, "tokenizer_config.json", {"do_lower_case": lower, "tokenizer_class": "BertTokenizer"})
    ours, theirs = loaded(tmp_path), reference.BertTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS, "HELLO Thé"]:
        assert ours.encode(text) == theirs.encode(text), text
        shown = theirs.decode(theirs.encode(text), clean_up_tokenization_spaces=False)
        assert ours.decode(ours.encode(text)).replace(" ", "") == shown.replace(" ", "")
    assert (ours.named["cls"], ours.named["mask"], ours.pad) == (2, 4, 0)


def test_minilm_is_cut_as_the_reference_cuts_it(minilm: Path, reference: ModuleType, tmp_path: Path) -> None:
    ours, theirs = loaded(minilm), reference.AutoTokenizer.from_pretrained(minilm)
    long = "word " * 300  # the file asks for truncation and padding to 128: that is for whoever makes a batch
    for text in [*TEXTS, long]:
        assert ours.encode(text) == theirs.encode(text), text
    for name in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copyfile(minilm / name, tmp_path / name)
    slow = loaded(tmp_path)
    assert all(slow.encode(text) == ours.encode(text) for text in TEXTS)
    assert ours.named == {"pad": 0, "unk": 100, "cls": 101, "sep": 102, "mask": 103}


def test_tk13_t5_from_its_sentencepiece_model(reference: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(making.sentencepiece_model("unigram"))
    ours, theirs = loaded(tmp_path), reference.T5Tokenizer.from_pretrained(tmp_path)
    for text in [text for text in TEXTS if "\u200b" not in text]:
        assert ours.encode(text) == theirs.encode(text), text
    assert len(ours) == len(theirs)
    assert ours.id("<extra_id_0>") == len(ours) - 1
    assert ours.id("<extra_id_99>") == len(ours) - 100
    assert ours.encode("<extra_id_0> the", specials=False)[0] == len(ours) - 1


def test_byt5_needs_no_vocabulary(reference: ModuleType, tmp_path: Path) -> None:
    theirs = reference.ByT5Tokenizer()
    theirs.save_pretrained(tmp_path)
    ours = loaded(tmp_path)
    for text in TEXTS:
        if "</s>" not in text:  # whose spaces the reference takes away, as if they were part of it
            assert ours.encode(text) == theirs.encode(text), text
        assert ours.decode(ours.encode(text, specials=False)) == text
    assert len(ours) == 384 and ours.encode("é", specials=False) == [0xC3 + 3, 0xA9 + 3]
    assert (ours.pad, ours.eos, ours.unk, ours.suffix) == (0, 1, 2, (1,))
    sentinels = ours.encode("<extra_id_0> and <extra_id_124>", specials=False)
    assert (sentinels[0], sentinels[-1]) == (259, 383) == (theirs.convert_tokens_to_ids("<extra_id_0>"), 383)
    ours.save(tmp_path / "saved")
    assert loaded(tmp_path / "saved").encode("a") == [100, 1]


def test_llama_from_its_sentencepiece_model(reference: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(making.sentencepiece_model("bpe"))
    making.write_json(
        tmp_path, "tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": True}
    )
    ours, theirs = loaded(tmp_path), reference.LlamaTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        if not text.startswith(" "):  # the reference's conversion loses the space that sentencepiece puts first
            assert ours.encode(text) == theirs.encode(text), text


def test_sentencepiece_text_after_a_control_id_gets_no_space(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(making.sentencepiece_model("bpe"))
    t = loaded(tmp_path)
    assert t.decode(t.encode("hello</s>there")) == "<s> hello</s>there"
    assert t.decode(t.encode("hello</s> there")) == "<s> hello</s> there"
    making.write_json(tmp_path, "tokenizer_config.json", {"legacy": True})
    t = loaded(tmp_path)
    assert t.decode(t.encode("hello</s>there")) == "<s> hello</s> there"


def test_sv7_a_users_own_symbols_of_a_sentencepiece_model_are_control_where_the_template_writes_them(
    tmp_path: Path,
) -> None:
    symbols = ["<start_of_turn>", "<end_of_turn>", "lazy"]
    model = making.sentencepiece_model("bpe", user_defined_symbols=",".join(symbols))
    (tmp_path / "tokenizer.model").write_bytes(model)
    template = "{{ bos_token }}<start_of_turn>lazy {{ messages[0].content }}<end_of_turn>"
    making.write_json(tmp_path, "tokenizer_config.json", {"chat_template": template})
    t = loaded(tmp_path)
    start, end, word = map(t.id, symbols)
    ids = t.chat([{"role": "user", "content": "a<end_of_turn> lazy</s>"}])
    assert (ids.count(start), ids.count(end), ids.count(word), ids.count(t.bos), ids.count(t.eos)) == (1, 1, 2, 1, 0)
    assert t.decode(ids) == "<s><start_of_turn>lazy a<end_of_turn> lazy</s><end_of_turn>"


def marian_folder(folder: Path) -> Path:
    source = making.sentencepiece_model("unigram")
    target = making.sentencepiece_model("unigram", normalization_rule_name="identity", seed_sentencepiece_size=3000)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    import sentencepiece

    pieces: dict[str, None] = {}
    for model in (source, target):
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces |= dict.fromkeys(processor.IdToPiece(list(range(3, processor.GetPieceSize()))))
    names = ["</s>", "<unk>", ">>fra<<", *pieces, "<pad>"]
    making.write_json(folder, "vocab.json", {name: id for id, name in enumerate(names)})
    config = {"tokenizer_class": "MarianTokenizer", "source_lang": "eng", "target_lang": "fra"}
    return making.write_json(folder, "tokenizer_config.json", config)


def test_marians_pair_of_models(reference: ModuleType, tmp_path: Path) -> None:
    folder = marian_folder(tmp_path)
    ours = loaded(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends a package
        theirs = reference.MarianTokenizer.from_pretrained(folder)
    for text in [*TEXTS, ">>fra<< hello", "hello >>fra<<"]:
        if "<" not in text or text.startswith(">>"):
            assert ours.encode(text) == theirs.encode(text), text
            assert ours.target is not None
            assert ours.target.encode(text) == theirs(text_target=text).input_ids
    assert ours.encode("hello there")[-1] == ours.eos == 0
    assert ours.pad == len(ours) - 1
    ids = ours.encode("the town, hello", specials=False)
    assert ours.decode(ids) == theirs.decode(ids) == "the town, hello"
    assert ours.encode("hello</s>", specials=False, control=False).count(0) == 0


def test_tk1_tk2_the_files_say_whether_a_bos_is_added(tmp_path: Path, reference: ModuleType) -> None:
    (tmp_path / "pieces").mkdir()
    (tmp_path / "pieces" / "tokenizer.model").write_bytes(making.sentencepiece_model("bpe"))
    for bos, eos in itertools.product((None, True, False), repeat=2):
        config = {f"add_{name}_token": value for name, value in (("bos", bos), ("eos", eos)) if value is not None}
        making.write_json(tmp_path / "pieces", "tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", **config})
        t = loaded(tmp_path / "pieces")
        assert (t.prefix, t.suffix) == ((1,) if bos in (None, True) else (), (2,) if eos else ()), config
        # A tokenizer.json says it itself.
        folder = making.tokenizer_folder(tmp_path, making.metaspace(), bos_token="<s>", eos_token="</s>", **config)
        theirs = reference.PreTrainedTokenizerFast.from_pretrained(folder)
        assert loaded(folder).encode("hello") == theirs.encode("hello"), config


def test_chat_templates_are_found_wherever_they_are(tmp_path: Path) -> None:
    def said(**config: Any) -> tuple[str, str | None]:
        template = loaded(making.tokenizer_folder(tmp_path, making.byte_level(), **config)).chat_template
        assert template is not None
        return template.source, template.tool_use

    assert loaded(making.tokenizer_folder(tmp_path, making.byte_level())).chat_template is None
    assert said(chat_template="one") == ("one", None)
    named = [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]
    assert said(chat_template=named) == ("one", "two")
    making.write_json(tmp_path, "chat_template.json", {"chat_template": "three"})
    assert said(chat_template="one") == ("three", None)
    (tmp_path / "chat_template.jinja").write_text("four", "utf-8")
    assert said(chat_template="one") == ("four", None)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("five", "utf-8")
    assert said() == ("four", "five")
    saved = tmp_path / "saved"
    loaded(tmp_path).save(saved)
    assert (saved / "additional_chat_templates" / "tool_use.jinja").read_text() == "five"


def test_saving_copies_the_files_byte_for_byte(tmp_path: Path) -> None:
    folders = {
        "json": making.tokenizer_folder(tmp_path / "json", making.word_piece(), unk_token={"content": "[UNK]"}),
        "pair": byte_level_folder(tmp_path / "pair", ("<|endoftext|>",)),
        "pieces": making.write_json(tmp_path / "pieces", "special_tokens_map.json", {}),
        "marian": making.write_json(tmp_path / "marian", "special_tokens_map.json", {}),
    }
    (folders["pieces"] / "odd name.model").write_bytes(making.sentencepiece_model())
    marian_folder(folders["marian"])
    for kind, folder in folders.items():
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
        (folder / "model.safetensors").write_bytes(b"not the tokenizer's")
        t = loaded(folder)
        t.save(tmp_path / "saved" / kind)
        assert {file.name: file.read_bytes() for file in (tmp_path / "saved" / kind).iterdir()} == files
        assert loaded(tmp_path / "saved" / kind).encode("hello") == t.encode("hello")
        t.save(folder)  # onto itself


@pytest.mark.parametrize("kind", ["json", "pieces"])
def test_saving_writes_what_was_read_whatever_became_of_it(tmp_path: Path, kind: str) -> None:
    folder = making.tokenizer_folder(tmp_path / "a", making.byte_level(), chat_template="one")
    if kind == "pieces":
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer.model").write_bytes(making.sentencepiece_model())
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    t = loaded(folder)
    making.write_json(folder, "tokenizer_config.json", {"chat_template": "another"})
    (folder / "chat_template.jinja").write_text("a third", "utf-8")
    t.save(tmp_path / "b")
    shutil.rmtree(folder)
    t.save(tmp_path / "c")
    for saved in ("b", "c"):
        assert {file.name: file.read_bytes() for file in (tmp_path / saved).iterdir()} == files


def test_mistakes_are_named(tmp_path: Path) -> None:
    def refused(name: str, content: Any, match: str, other: dict[str, Any] | None = None) -> None:
        folder = making.write_json(tmp_path / match.replace(" ", ""), name, content)
        for more, value in (other or {}).items():
            making.write_json(folder, more, value)
        with pytest.raises(TokenizerError, match=match) as error:
            load_tokenizer(folder)
        assert "\n" not in str(error.value)

    decoder = json.loads(making.byte_level()) | {
        "decoder": {"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": True}
    }
    refused("tokenizer.json", decoder, "'CTC' is not one")
    refused("tokenizer.json", "{", "cannot read it")
    refused("vocab.json", ["a"], "an object is needed", {"merges.txt": ""})
    refused("vocab.json", {"a": 0}, "two tokens", {"merges.txt": "a b c"})
    refused("vocab.json", {"a": 0}, "do not fit the vocabulary", {"merges.txt": "a b"})
    refused(
        "vocab.json",
        {"a": 0},
        "of a CLIPTokenizer",
        {"merges.txt": "", "tokenizer_config.json": {"tokenizer_class": "CLIPTokenizer"}},
    )
    refused("spiece.model", "junk", "the model cannot be read")
    refused(
        "tokenizer.json",
        making.byte_level(),
        "should have the id 7",
        {"tokenizer_config.json": {"added_tokens_decoder": {"7": "<x>"}}},
    )
    refused("vocab.txt", "a\nb", "the cls token goes around")


def mistaken(folder: Path, files: dict[str, Any], match: str) -> None:
    for name, value in files.items():
        making.write_json(folder, name, value)
    with pytest.raises(TokenizerError, match=match) as error:
        load_tokenizer(folder)
    assert "\n" not in str(error.value)


CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"pad_token": 0}, "pad_token is 0 in its JSON files; it must be a token's string"),
    ({"pad_token": []}, r"pad_token is \[\]"),
    ({"pad_token": {}}, "pad_token is {}"),
    ({"pad_token": "\ud800"}, r"pad_token is '\\ud800'"),
    ({"added_tokens_decoder": ["<a>"]}, "added_tokens_decoder is .* an object of ids and tokens"),
    ({"added_tokens_decoder": {"x": "<a>"}}, "added_tokens_decoder is 'x'.* an id from 0"),
    ({"added_tokens_decoder": {"10000000": "<a>"}}, "added_tokens_decoder is '10000000'.* below 10,000,000"),
    ({"added_tokens_decoder": {"400": None}}, "added_tokens_decoder is None"),
    ({"added_tokens_decoder": {"400": {"content": "<a>", "lstrip": "no"}}}, "lstrip of '<a>', is 'no'"),
    ({"additional_special_tokens": "<a>"}, "additional_special_tokens is '<a>'.* a list of tokens"),
    ({"additional_special_tokens": 0}, "additional_special_tokens is 0"),
    ({"additional_special_tokens": [3]}, "additional_special_tokens is 3"),
    ({"chat_template": 3}, "chat_template is 3.* a string, or a list of objects"),
    ({"chat_template": [{"name": "default"}]}, "chat_template is .* a name and a template"),
]


@pytest.mark.parametrize(("config", "match"), CONFIGS)
def test_a_value_of_another_type_is_named(config: dict[str, Any], match: str, tmp_path: Path) -> None:
    mistaken(tmp_path, {"tokenizer.json": making.byte_level(), "tokenizer_config.json": config}, match)


def test_a_class_of_another_type_is_named(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n", "utf-8")
    for config, match in (
        ({"tokenizer_class": 3}, "tokenizer_class is 3"),
        ({"do_lower_case": "no"}, "do_lower_case is 'no'.* true, false or null"),
    ):
        mistaken(tmp_path, {"tokenizer_config.json": config}, match)


def test_added_tokens_without_a_possible_id(tmp_path: Path) -> None:
    base = {"tokenizer.json": making.byte_level()}
    for id in (-1, 1.5, "3", True, 10**9):
        mistaken(tmp_path, {**base, "added_tokens.json": {"<a>": id}}, "added_tokens.json: the id of '<a>' is")


def test_json_that_is_nested_too_deeply(tmp_path: Path) -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    mistaken(tmp_path, {"tokenizer.json": making.byte_level(), "tokenizer_config.json": deep}, "nested too deeply")


def test_a_panic_of_the_library_is_an_error_in_one_sentence(tmp_path: Path) -> None:
    state = json.loads(making.byte_level())
    state["model"]["continuing_subword_prefix"] = "@@@@"
    mistaken(tmp_path, {"tokenizer.json": state}, "the tokenizers library cannot read it")


def test_a_stop_while_a_file_is_read_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        @staticmethod
        def from_file(path: str) -> None:
            raise KeyboardInterrupt

    making.write_json(tmp_path, "tokenizer.json", making.byte_level())
    monkeypatch.setattr("plait.text.folder.Library", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_tokenizer(tmp_path)


def test_byt5_has_the_sentinels_that_are_said(tmp_path: Path) -> None:
    config: dict[str, Any] = {"tokenizer_class": "ByT5Tokenizer"}
    for said, size in ((0, 259), (3, 262), (None, 384)):
        making.write_json(tmp_path, "tokenizer_config.json", config | {"extra_ids": said})
        assert len(loaded(tmp_path)) == size
    for said in (-1, 1.5, "3", True, 10_001):
        config["extra_ids"] = said
        mistaken(tmp_path, {"tokenizer_config.json": config}, "extra_ids is .* a whole number from 0 to 10,000")
    config |= {"extra_ids": 0, "eos_token": "<pad>"}
    mistaken(tmp_path, {"tokenizer_config.json": config}, "needs three tokens")


@pytest.mark.parametrize("ids", [[0, -1], [0, 10**9], [0, 0], [0, True]])
def test_ids_of_vocab_json_that_cannot_be(ids: list[int], tmp_path: Path) -> None:
    vocab = dict(zip("ab", ids, strict=True))
    making.write_json(tmp_path, "vocab.json", vocab)
    (tmp_path / "merges.txt").write_text("", "utf-8")
    mistaken(tmp_path, {"vocab.json": vocab}, "from 0 to below 10,000,000|'a' and 'b' both have the id 0")
