"""Pairs from files: nothing shifts, and whatever is left out is counted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from plait.data.error import DataError
from plait.data.lines import Tally
from plait.data.pairs import encode_pairs, read_pairs
from tests.data.making import in_memory


def written(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(*paths: Path, **options) -> tuple[list[tuple[str, str]], Tally]:
    tally = Tally()
    return list(read_pairs(list(paths), tally, **options)), tally


def spelt(texts):
    """An id for each letter, and an end."""
    return [[*map(ord, text), 0] for text in texts]


@pytest.mark.parametrize("last", ["", "\n"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_tl1_blank_lines_shift_nothing(tmp_path: Path, last: str, ending: str):
    one = written(tmp_path / f"a{ending}", "a\n\nb\n  \nc" + last)
    two = written(tmp_path / f"b{ending}", "A\nX\n\nY\nC" + last)
    pairs, tally = read(one, two)
    assert pairs == [("a", "A"), ("c", "C")]
    assert (tally.read, tally.blank, tally.bad) == (5, 3, 0)


def test_lines_end_at_line_feeds_alone(tmp_path: Path):
    one = written(tmp_path / "a", "\ufeffa\u2028b\x0bc\x85d\re\r\nf\r\n")
    two = written(tmp_path / "b", "1\n2\n")
    assert read(one, two)[0] == [("a\u2028b\x0bc\x85d\re", "1"), ("f", "2")]


@pytest.mark.parametrize(("first", "second"), [("a\nb\nc\n", "A\nB"), ("a", "A\n\n")])
def test_files_of_different_length_are_refused_with_both_counts(tmp_path: Path, first: str, second: str):
    one, two = written(tmp_path / "a", first), written(tmp_path / "b", second)
    counts = [text.count("\n") + (not text.endswith("\n")) for text in (first, second)]
    with pytest.raises(DataError, match=rf"a has {counts[0]} lines and .*b has {counts[1]}"):
        read(one, two)


def test_a_table_has_two_columns_and_what_it_lacks_is_counted(tmp_path: Path):
    table = written(tmp_path / "a.tsv.gz", "\ufeffHi.\t嗨。\tCC-BY\nno tab\nRun!\t跑！\n\t空\n\n")
    pairs, tally = read(table)
    assert pairs == [("Hi.", "嗨。"), ("Run!", "跑！")]
    assert tally.facts() == {"read": 5, "blank": 2, "over_long": 0, "cut": 0, "bad": 1}
    assert tally.first_bad == f"{table}, line 2: it has no tab"


def test_objects_have_two_strings_or_say_which(tmp_path: Path):
    lines = [{"en": "a", "de": "A"}, {"en": "b"}, ["c", "C"], {"en": "d", "de": 4}, {"en": "e\ud83c", "de": "E"}]
    text = "\n".join(map(json.dumps, lines)) + "\n{broken\n"
    pairs, tally = read(written(tmp_path / "a.jsonl", text))
    assert pairs == [("a", "A")]
    assert (tally.read, tally.bad) == (6, 5)
    inside = written(tmp_path / "b.jsonl", json.dumps({"id": 1, "translation": {"en": "a", "de": "A"}}))
    assert read(inside)[0] == [("a", "A")]
    three = written(tmp_path / "c.jsonl", json.dumps({"en": "a", "de": "A", "fr": "Â"}))
    with pytest.raises(DataError, match=r"3 strings \(en, de, fr\)"):
        read(three)
    assert read(three, fields=("fr", "en"), lowercase=True)[0] == [("â", "a")]


def test_what_makes_no_pairs_is_refused(tmp_path: Path):
    text, table = written(tmp_path / "a.txt", "a"), written(tmp_path / "a.tsv", "a\tb")
    for paths in ((), (text, table), (text, text, text)):
        with pytest.raises(DataError, match="makes no pairs"):
            read(*paths)
    with pytest.raises(DataError, match=r"bad, line 2: it is not UTF-8 \(byte 0xFF\)"):
        (tmp_path / "bad").write_bytes(b"a\n\xff\n")
        read(text, tmp_path / "bad")


@pytest.mark.parametrize(("longest", "kept"), [("drop", [7, 8]), ("cut", [7, 8, 8, 8])])
def test_tl3_the_end_token_counts_and_over_long_lines_have_a_policy(longest, kept: list[int]):
    for side in (0, 1):
        tally = Tally()
        pairs = [("x" * n, "y")[:: 1 - 2 * side] for n in (6, 7, 8, 9)]
        rows = in_memory(encode_pairs(pairs, tally, source=spelt, target=spelt, length=8, longest=longest))
        assert rows[side].lengths.tolist() == kept
        assert [int(rows[side][row][-1]) for row in range(len(kept))] == [0] * len(kept)  # each has its end
        assert rows[1 - side].lengths.tolist() == [2] * len(kept)
        assert (tally.over_long, tally.cut) == (2, len(kept) - 2)


def test_nothing_left_says_why():
    tally = Tally(read=3, blank=1, bad=1, first_bad="a.tsv, line 2: it has no tab")
    with pytest.raises(DataError, match=r"1 blank, 1 over-long, 1 bad; the first bad one is a.tsv, line 2"):
        list(encode_pairs([("abcd", "e")], tally, source=spelt, target=spelt, length=4))


def test_a_real_table(data: Path):
    pairs, tally = read(data / "cmn-eng" / "cmn.txt")
    assert len(pairs) == 29155
    assert tally.facts() == {"read": 29156, "blank": 1, "over_long": 0, "cut": 0, "bad": 0}  # its last line is empty
    assert pairs[0] == ("Hi.", "嗨。") and not any("tatoeba" in side for pair in pairs for side in pair)


def test_one_text_file_has_its_pairs_parted_by_tabs(tmp_path: Path):
    assert read(written(tmp_path / "a.txt", "Hi.\t嗨。\tCC-BY\n"))[0] == [("Hi.", "嗨。")]
    pairs, tally = read(written(tmp_path / "b.txt", "Hi.\n"))
    assert not pairs and tally.bad == 1


def test_the_first_objects_names_hold_for_all_files(tmp_path: Path):
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    files[0].write_text('{"en": "hi", "de": "hallo"}\n')
    files[1].write_text('{"de": "hund", "en": "dog"}\n{"de": "katze", "fr": "chat"}\n')
    tally = Tally()
    assert list(read_pairs(files, tally)) == [("hi", "hallo"), ("dog", "hund")]
    assert tally.bad == 1 and "no strings 'en' and 'de'" in tally.first_bad
