"""Documents: what each kind of file holds, what is left out and counted, and that nothing else is lost."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.data import documents as module
from plait.data.documents import Documents
from plait.data.error import DataError
from plait.data.sources import find, identity


def read(names, **options) -> tuple[list[str], dict[str, int]]:
    """The documents whole, and the counts that are not 0."""
    documents = Documents(find(names)[0], **options)
    texts: list[str] = []
    ended = True
    for text, first, last in documents:
        assert first == ended
        texts += [text] if first else [texts.pop() + text]
        ended = last
    assert ended
    counts = documents.counts
    assert (counts.documents, counts.bytes) == (len(texts), len("".join(texts).encode()))
    return texts, {name: value for name in ("blank", "over_long", "bad") if (value := getattr(counts, name))}


def test_a_text_file_is_one_document_kept_as_it_is(tmp_path: Path):
    text = "\n\n a\r\n\tb \u2028 naïve\x00\n\n"
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read(tmp_path / "a.txt") == ([text], {})


def test_lines_are_documents_where_that_is_asked(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"one\n\ntwo\r\n  \nno\xff\nlast\x0bone")
    assert read(tmp_path / "a.txt", each="line") == (["one", "two", "last\x0bone"], {"blank": 2, "bad": 1})


def test_a_line_that_says_so_ends_a_document(tmp_path: Path):
    (tmp_path / "a.txt").write_text(
        "one\n<|endoftext|>\ntwo <|endoftext|> still\n<|endoftext|>more\n<|endoftext|>\n \n"
    )
    assert read(tmp_path / "a.txt") == (["one\n", "two <|endoftext|> still\n<|endoftext|>more\n"], {"blank": 1})


def test_lines_that_are_not_utf8_are_left_out_and_the_first_is_named(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\r one\nbad \xc3\nfine \xc3\xa9\n\xfe\n")
    documents = Documents(find(path)[0])
    assert [piece.text for piece in documents] == ["good\r one\nfine é\n"]
    assert documents.counts.bad == 2
    assert documents.counts.first_bad == f"{path}, line 2: it is not UTF-8"


def test_every_way_in_which_a_json_line_can_be_bad(tmp_path: Path):
    lines = [b'{"text": "one"}', b"", b'{"text": 3}', b'{"other": "x"}', b"[1]", b"{", b'"text"', b'{"text": "\xff"}']
    lines += [b'{"text": " "}', rb'{"text": "\ud83c"}', rb'{"text": "two\nlines \ud83d\ude00"}', b"NaN", b"[" * 100_000]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    assert read(tmp_path / "a.jsonl") == (["one", "two\nlines 😀"], {"blank": 2, "bad": 9})


def test_an_over_long_json_line_is_counted_and_the_next_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LONGEST", 41)
    lines = [json.dumps({"text": "x" * n}) + "\n" for n in (28, 29, 200, 1)]
    assert [len(line) for line in lines] == [41, 42, 213, 14]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    assert read(tmp_path / "a.jsonl") == (["x" * 28, "x"], {"over_long": 2})


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl"])
def test_packed_files_of_several_members_are_read_whole(tmp_path: Path, kind: str, ending: str):
    compress = gzip.compress if ending == ".gz" else importlib.import_module("zstandard").ZstdCompressor().compress
    texts = ["one\n" * 50_000, "zwei\n"]
    data = [(text if kind == ".txt" else json.dumps({"text": text}) + "\n").encode() for text in texts]
    path = tmp_path / f"a{kind}{ending}"
    path.write_bytes(b"".join(map(compress, data)))
    assert read(path)[0] == (["".join(texts)] if kind == ".txt" else texts)
    path.write_bytes(b"".join(map(compress, data))[:-9])
    with pytest.raises(DataError, match=f"{path.name}: this"):
        read(path)
    path.write_bytes(b"no such thing")
    with pytest.raises(DataError, match=f"{path.name}: this"):
        read(path)


def test_parquet_rows_are_documents(tmp_path: Path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = ["one", None, "", *(f"row {n}" for n in range(1000))]
    parquet.write_table(arrow.table({"story": rows, "n": range(len(rows))}), tmp_path / "a.parquet")
    texts, counts = read(tmp_path / "a.parquet", field="story")
    assert texts == ["one", *rows[3:]] and counts == {"blank": 1, "bad": 1}
    assert read(tmp_path / "a.parquet", field="story")[1] == counts
    with pytest.raises(DataError, match="it has no column 'text'; its columns are story, n"):
        read(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="b.parquet: this is no parquet file"):
        read(tmp_path / "b.parquet")


def test_a_folder_is_its_texts_in_order(tmp_path: Path):
    for name in ("b/2.txt", "b/10.jsonl", "a.txt", ".hidden/x.txt", "picture.png", "c.txt.gz"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        data = json.dumps({"text": name}).encode() if name.endswith("jsonl") else name.encode()
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found, others = find([tmp_path])
    assert others == 1
    assert read(tmp_path)[0] == ["a.txt", "b/10.jsonl", "b/2.txt", "c.txt.gz"]
    assert [source.kind for source in found] == ["text", "jsonl", "text", "text"]


def test_names_that_are_no_texts_are_refused(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "blank.txt").write_text(" \n")
    (tmp_path / "bad.jsonl").write_text("{\n")
    (tmp_path / "one.json").write_text("{}")
    for names, words in [
        (tmp_path / "no", "there is no such file"),
        (tmp_path / "folder", "no file in this folder ends in"),
        ([], "no file is named"),
        ([tmp_path / "blank.txt"] * 2, "it stands twice"),
        (tmp_path / "one.json", "name the file .jsonl"),
        (tmp_path / "blank.txt", "there is no text in it"),
        (tmp_path / "bad.jsonl", "The first bad line is .*line 1: it is not JSON"),
    ]:
        with pytest.raises(DataError, match=words):
            read(names)


@given(text=st.text(alphabet=" \nab,é世", max_size=200), size=st.integers(1, 30))
def test_pieces_joined_are_the_document_and_no_longer_than_asked(tmp_path: Path, text: str, size: int):
    (tmp_path / "a.txt").write_text(text, "utf-8", newline="")
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}))
    before = module.PIECE, module.BLOCK
    module.PIECE, module.BLOCK = size, max(size, 4)  # a character has four bytes
    try:
        for name in ("a.txt", "a.jsonl"):
            documents = Documents(find(tmp_path / name)[0])
            if not text.strip() and len(text) <= size:
                with pytest.raises(DataError):
                    list(documents)
                continue
            pieces = list(documents)
            assert "".join(piece.text for piece in pieces) == text
            assert all(len(piece.text) <= size for piece in pieces)
            assert [piece.first for piece in pieces] == [True] + [False] * (len(pieces) - 1)
            assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    finally:
        module.PIECE, module.BLOCK = before


def test_what_a_library_is_missing_for_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.txt.zst").write_bytes(b"")
    (tmp_path / "a.parquet").write_bytes(b"")
    for name, library, package in [
        ("a.txt.zst", "zstandard", "zst"),
        ("a.parquet", "pyarrow.parquet", "parquet"),
        ("hf:someone/something", "datasets", "datasets"),
    ]:
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(DataError, match=rf"takes the library .*; pip install 'plait\[{package}\]'"):
            read(name if name.startswith("hf:") else tmp_path / name)


def test_a_data_set_of_the_hub_is_streamed(monkeypatch: pytest.MonkeyPatch):
    taken: list[int] = []

    class Builder:
        config_id, hash = "raw-1", "abc"

        def as_streaming_dataset(self, split: str):
            for n in range(10**9):
                taken.append(n)
                yield {"text": f"{split} {n}"}

    asked: list[tuple[str, str | None]] = []
    library = types.ModuleType("datasets")
    library.load_dataset_builder = lambda *names: asked.append(names) or Builder()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", library)
    (source,), _ = find("hf:someone/stories:raw@validation")
    pieces = iter(Documents([source]))
    assert [next(pieces).text for _ in range(3)] == ["validation 0", "validation 1", "validation 2"]
    assert len(taken) <= 4
    assert identity(source) == ["hub", source.name, "validation", "raw-1", "abc"]
    assert next(iter(Documents(find("hf:plain")[0]))).text == "train 0"
    assert asked == [("someone/stories", "raw")] * 2 + [("plain", None)]
