"""Vocabularies learnt from text: equal to the reference trainers', and nothing lost on the way there and back."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from plait.text import KINDS, TokenizerError, cost, lines, load_tokenizer, train_tokenizer
from plait.text.training import _ASCII, _WORDS

LOSSLESS = [kind for kind in KINDS if kind not in ("wordpiece", "alphabet")]
WORDS = "the quick brown fox jumps over lazy dogs; naïve café, 北京 Москва 42 3.14 don't it's\n".split(" ")


def corpus(seed: int = 0, n: int = 400) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=9)) + "\n" for _ in range(n)]


def mixed(size: int) -> str:
    """About ``size`` bytes of many scripts, emoji, control characters, and all that vocabularies use as marks."""
    draw = random.Random(1)
    ranges = ((0, 0x600), (0x900, 0xA00), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF))
    marks = [
        "▁",
        "Ġ",
        "##",
        "<0x41>",
        "<unk>",
        "\r\n",
        "\t",
        "  ",
        " ",
        "\x00",
        "\x7f",
        "\u200d",
        "é",
        "👨‍👩‍👧‍👦",
        "🇫🇷",
        "\ufeff",
        "￿",
    ]
    out: list[str] = []
    while size > 0:
        piece = draw.choice(marks) if draw.random() < 0.2 else chr(draw.randint(*draw.choice(ranges)))
        piece = piece if draw.random() < 0.5 else piece + draw.choice(WORDS)
        out.append(piece)
        size -= len(piece.encode())
    return "".join(out)


@pytest.mark.parametrize("kind", LOSSLESS)
def test_a_megabyte_comes_back_exactly(kind: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(corpus(), kind=kind, vocab_size=700)
    text = mixed(1_000_000)
    for i in range(0, len(text), 20_000):  # as a reader would have it: in pieces
        piece = text[i : i + 20_000]
        ids = tokenizer.encode(piece, specials=False, control=False)
        assert tokenizer.decode(ids) == piece
        assert tokenizer.unk not in ids
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again is not None and again.encode(text[:5000]) == tokenizer.encode(text[:5000])
    assert again.named == tokenizer.named and len(again) == len(tokenizer)


def same(mine, theirs: Library) -> None:
    ours, other = (json.loads(library.to_str())["model"] for library in (mine.segmenter.library, theirs))
    assert ours["vocab"] == other["vocab"] and ours.get("merges") == other.get("merges")


def written(tmp_path: Path) -> list[str]:
    (tmp_path / "text").write_text("".join(corpus()), encoding="utf-8", newline="")
    return [str(tmp_path / "text")]


def test_byte_bpe_is_the_reference_trainers(tmp_path: Path) -> None:
    theirs = Library(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        min_frequency=2,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train(written(tmp_path), trainer)
    mine = train_tokenizer(lines([tmp_path / "text"]), vocab_size=400)
    same(mine, theirs)
    text = mixed(3000)
    assert mine.encode(text, control=False) == theirs.encode(text.replace("<pad>", "")).ids


def test_wordpiece_is_the_reference_trainers(tmp_path: Path) -> None:
    theirs = Library(models.WordPiece(unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(lowercase=True)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=90, min_frequency=2, special_tokens=specials, show_progress=False)
    theirs.train(written(tmp_path), trainer)
    mine = train_tokenizer(lines([tmp_path / "text"]), kind="wordpiece", vocab_size=90, lowercase=True)
    ours, other = (library.get_vocab() for library in (mine.segmenter.library, theirs))
    # The library numbers characters inside words in another order each time, and here the order is one
    assert ours.keys() == other.keys() and all(ours[name] == other[name] for name in specials)
    assert mine.decode(mine.encode("The QUICK fox")) == "[CLS] the quick fox [SEP]"


def test_bpe_learns_the_reference_trainers_merges(tmp_path: Path) -> None:
    """Ours has 256 tokens of bytes before them, and its ids are that much higher; nothing else differs."""
    theirs = Library(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    trainer = trainers.BpeTrainer(vocab_size=300, min_frequency=2, initial_alphabet=_ASCII, show_progress=False)
    theirs.train(written(tmp_path), trainer)
    mine = train_tokenizer(lines([tmp_path / "text"]), kind="bpe", vocab_size=300 + 256 + 4)
    ours = json.loads(mine.segmenter.library.to_str())["model"]
    other = json.loads(theirs.to_str())["model"]
    assert ours["merges"] == other["merges"]
    assert {token: id for token, id in ours["vocab"].items() if id >= 260} == {
        token: id + 260 for token, id in other["vocab"].items()
    }


def test_unigram_learns_the_reference_trainers_pieces(tmp_path: Path) -> None:
    theirs = Library(models.Unigram())
    theirs.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    trainer = trainers.UnigramTrainer(
        vocab_size=201, initial_alphabet=_ASCII, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    theirs.train(written(tmp_path), trainer)
    mine = train_tokenizer(lines([tmp_path / "text"]), kind="unigram", vocab_size=200 + 256 + 4)
    scores = dict(json.loads(theirs.to_str())["model"]["vocab"])
    ours = dict(json.loads(mine.segmenter.library.to_str())["model"]["vocab"])
    del scores["<unk>"]
    # The library numbers characters that it kept by force in another order each time: their scores differ by that
    assert {token: ours[token] for token in scores} == pytest.approx(scores, rel=5e-3)
    assert len(ours) == len(scores) + 256 + 4


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_a_vocabulary_is_the_same_in_every_process(kind: str, tmp_path: Path) -> None:
    """The library's hash tables have another order in each."""
    path, out = written(tmp_path)[0], []
    for number in range(2):
        folder = tmp_path / str(number)
        command = ["tokenizer", "train", path, "--kind", kind, "--vocab-size", "400", "--out", str(folder)]
        subprocess.run([sys.executable, "-m", "plait", *command], check=True, capture_output=True)
        out.append((folder / "tokenizer.json").read_bytes())
    assert out[0] == out[1]


def test_bytes_and_characters_are_what_they_say() -> None:
    tokenizer = train_tokenizer(["abc"], kind="bytes")
    assert len(tokenizer) == 256 + 3 and tokenizer.encode("aé\x00") == [3 + byte for byte in "aé\x00".encode()]
    tokenizer = train_tokenizer(["abcabc\nxé"], kind="characters", min_frequency=2)
    assert [tokenizer.token(id) for id in tokenizer.encode("cabé")] == ["c", "a", "b", "<0xC3>", "<0xA9>"]
    assert len(tokenizer) == 4 + 256 + 3


def test_an_alphabet_is_the_texts_characters_and_one_for_all_others(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["abcabc\nx"], kind="alphabet", min_frequency=1)
    assert len(tokenizer) == 4 + 5
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again is not None
    for one in (tokenizer, again):
        ids = one.encode("cab\né北xc")
        assert [one.token(id) for id in ids] == ["c", "a", "b", "\n", "<unk>", "<unk>", "x", "c"]
        assert one.decode(one.encode("cab x\n abc")) == "cab<unk>x\n<unk>abc" and one.decode(ids[:4]) == "cab\n"
    assert cost(tokenizer, ["caféb北"]).unknown == 3  # f too
    few = train_tokenizer(["aaabbc"], kind="alphabet", vocab_size=6, min_frequency=1)
    assert [few.token(id) for id in few.encode("abc")] == ["a", "b", "<unk>"]
    assert train_tokenizer(["aaabbc"], kind="alphabet").encode("c") == [tokenizer.id("<unk>")]  # once is too rare


def test_roles_go_around_texts(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(corpus(), vocab_size=300, specials={"eos": "<|end|>"}, before=["bos"], after=["eos"])
    assert tokenizer.token(tokenizer.eos) == "<|end|>"
    ids = tokenizer.encode("the fox")
    assert (ids[0], ids[-1]) == (tokenizer.bos, tokenizer.eos) and tokenizer.decode(
        ids, skip_specials=True
    ) == "the fox"
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again is not None and again.encode("the fox") == ids and again.eos == tokenizer.eos


def test_texts_are_read_one_by_one() -> None:
    read = 0

    def stream():
        nonlocal read
        for text in corpus():
            read += 1
            yield text

    train_tokenizer(stream(), vocab_size=300)
    assert read == 400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "morse"}, "kind: 'morse' is not one of byte-bpe"),
        ({"vocab_size": 200}, "vocab_size: 200 ids do not hold the 259"),
        ({"specials": {"end": "x"}}, "'end' is no role"),
        ({"before": ["cls"]}, "cls: it should go around texts"),
        ({"lowercase": True}, "lowercase: a byte-bpe vocabulary keeps every character"),
        ({"kind": ["bpe"]}, r"kind: \['bpe'\] is not one of"),
        ({"specials": {"pad": "a"}}, "specials: pad is 'a', which a vocabulary has for text itself"),
        ({"specials": {"pad": "Ġ"}}, "specials: pad is 'Ġ'"),
        ({"specials": {"pad": "<0x41>"}, "kind": "bpe"}, "specials: pad is '<0x41>'"),
        ({"specials": {"pad": "##a"}, "kind": "wordpiece"}, "specials: pad is '##a'"),
        ({"specials": {"pad": 3}}, "specials: pad is 3, and must be a string"),
        ({"specials": {"pad": ""}}, "specials: pad is ''"),
        ({"specials": {"pad": "<\ud800>"}}, "specials: pad is .* a string of characters"),
        ({"vocab_size": 300.0}, "vocab_size: it is 300.0, and must be a whole number"),
        ({"vocab_size": True}, "vocab_size: it is True"),
        ({"vocab_size": 10**8}, "vocab_size: it is 100000000, .* from 1 to 10,000,000"),
        ({"min_frequency": 0}, "min_frequency: it is 0, and must be a whole number from 1"),
        ({"min_frequency": "2"}, "min_frequency: it is '2'"),
    ],
)
def test_what_cannot_be_learnt_is_refused(options: dict, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        train_tokenizer(["some text\n"], **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["fine\n", 3], "texts: number 2 is of the type int, and must be a string"),
        (["fine\n", "\ud800"], "texts: number 2 has half of a surrogate pair"),
        ("one string", "texts: it is one string, and must be several"),
    ],
)
def test_texts_that_are_none(kind: str, texts: list, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        train_tokenizer(texts, kind=kind, vocab_size=500)


def test_nothing_to_learn_from(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="nothing in them"):
        train_tokenizer(["", " \n"])
    (tmp_path / "latin").write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(TokenizerError, match=r"latin: it is not UTF-8 after line \d \(byte 0xE9\)"):
        list(lines([tmp_path / "latin"]))


def test_cost_counts_bytes_words_lines_and_tokens() -> None:
    tokenizer = train_tokenizer(["x"], kind="bytes")
    found = cost(tokenizer, ["naïve café\n", "x"])
    assert (found.bytes, found.words, found.lines, found.tokens, found.unknown) == (14, 3, 2, 14, 0)
    assert (found.per_byte, found.per_word, found.per_line) == (1.0, 14 / 3, 7.0)
    words = train_tokenizer(corpus(), kind="wordpiece", vocab_size=100)
    assert cost(words, ["the ☃ fox"]).unknown == 1
    assert cost(tokenizer, []).per_byte is None
