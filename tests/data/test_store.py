"""The store: texts are tokenised once, what breaks is noticed and made anew, and half a store is never taken for it."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from plait.data import documents, progress
from plait.data.error import DataError
from plait.data.store import cache_folder, tokenised
from plait.text import train_tokenizer
from tests.data.making import END, Bytes, store, text

DOCUMENTS = [f"document {n} of no great length" + "!" * (n % 7) for n in range(40)]
WHOLE = "".join(document + "\n" for document in DOCUMENTS)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache").glob("*/*.tokens"))


def again(folder: Path, tokenizer: Bytes, **options) -> str:
    return text(tokenised(folder / "text.jsonl", tokenizer, cache=folder / "cache", **{"shard": 300, **options}))


@pytest.mark.parametrize("shard", [1, 100, 300, 10**6])
def test_tokens_and_documents_are_those_of_the_texts(tmp_path: Path, shard: int):
    tokens = store(tmp_path, [*DOCUMENTS, "  "], shard=shard)
    assert text(tokens) == WHOLE and len(tokens) == len(WHOLE)
    assert tokens.n_documents == len(DOCUMENTS)
    found = [tokens.read(*tokens.document(n)) for n in range(tokens.n_documents)]
    assert [bytes(ids.tolist()).decode() for ids in found] == [document + "\n" for document in DOCUMENTS]
    starts = np.cumsum([0, *(len(document) + 1 for document in DOCUMENTS)])
    for start, stop in [(0, len(tokens)), (0, 1), (29, 35), (30, 31), (500, 900)]:
        assert tokens.borders(start, stop).tolist() == [place for place in starts if start < place < stop]
        assert tokens.read(start, stop).tolist() == list(WHOLE.encode())[start:stop]
    assert (tokens.counts["documents"], tokens.counts["blank"]) == (40, 1)
    assert len(files(tmp_path)) == {1: 40, 100: 12, 300: 5, 10**6: 1}[shard]


def test_the_second_time_nothing_is_tokenised_whatever_the_file_is_called(tmp_path: Path):
    store(tmp_path, DOCUMENTS, shard=300)
    tokenizer = Bytes()
    (tmp_path / "text.jsonl").rename(tmp_path / "renamed.jsonl")
    tokens = tokenised(tmp_path / "renamed.jsonl", tokenizer, cache=tmp_path / "cache", shard=300)
    assert text(tokens) == WHOLE and tokenizer.calls == 0 and tokens.counts["documents"] == 40


@pytest.mark.parametrize(
    "change", [{"lowercase": True}, {"after": ()}, {"before": (1,)}, {"tokenizer": Bytes(300)}, {"content": "more"}]
)
def test_another_text_tokenizer_or_setting_is_another_store(tmp_path: Path, change: dict):
    store(tmp_path, DOCUMENTS, shard=300)
    tokenizer = change.pop("tokenizer", Bytes())
    if content := change.pop("content", None):
        with (tmp_path / "text.jsonl").open("a") as file:
            file.write(json.dumps({"text": content}))
    again(tmp_path, tokenizer, **change)
    assert tokenizer.calls > 0 and len(list((tmp_path / "cache").iterdir())) == 2


def test_ids_around_documents_and_case(tmp_path: Path):
    tokens = store(tmp_path, ["Ab", "Cd"], before=(1, 2), after=(), lowercase=True)
    assert tokens.read(0, 8).tolist() == [1, 2, *b"ab", 1, 2, *b"cd"]
    tokenizer = Bytes()
    tokenizer.prefix, tokenizer.suffix = (3,), (4,)
    assert [*again(tmp_path, tokenizer).encode()] == [3, *b"Ab", 4, END, 3, *b"Cd", 4, END]
    tokenizer.suffix = (END,)  # an end that the tokenizer adds is not added twice
    assert [*again(tmp_path, tokenizer, lowercase=True).encode()] == [3, *b"ab", END, 3, *b"cd", END]


@pytest.mark.parametrize(("size", "type"), [(2, "uint16"), (65536, "uint16"), (65537, "uint32")])
def test_the_type_holds_every_id(tmp_path: Path, size: int, type: str):
    (tmp_path / "a.txt").write_text("ab")
    tokens = tokenised(tmp_path / "a.txt", Bytes(size), after=(size - 1,), cache=tmp_path)
    assert tokens.shards[0].tokens.dtype == type and tokens.read(0, 3)[-1] == size - 1


def test_a_document_longer_than_a_shard_goes_on_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents, "PIECE", 20)
    long = " ".join(map(str, range(100)))
    tokens = store(tmp_path, ["short", long, "end"], shard=50)
    assert text(tokens) == f"short\n{long}\nend\n" and len(tokens.shards) > 4 and tokens.n_documents == 3
    assert tokens.document(1) == (6, 6 + len(long) + 1)
    assert tokens.borders(0, len(tokens)).tolist() == [6, len(long) + 7]


# What breaks


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("broken", ["cut", "empty", "missing", "flipped", "other", "footer"])
def test_a_broken_shard_is_noticed_and_it_alone_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, number: int
):
    monkeypatch.setattr("plait.data.tokenising.PIECE", 1)  # a document or two at a time
    store(tmp_path, DOCUMENTS, shard=300)
    paths = files(tmp_path)
    good = [path.read_bytes() for path in paths]
    data = bytearray(good[number])
    if broken == "missing":
        paths[number].unlink()
    else:
        data[17 if broken == "flipped" else -60] ^= 1
        paths[number].write_bytes(
            {"cut": data[:-100], "empty": b"", "other": good[1 - min(number, 1)]}.get(broken, data)
        )
    tokenizer = Bytes()
    assert again(tmp_path, tokenizer) == WHOLE
    assert [path.read_bytes() for path in paths] == good
    assert 0 < tokenizer.calls < 20
    assert again(tmp_path, unused := Bytes()) == WHOLE and unused.calls == 0


def test_what_a_broken_off_start_has_written_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("plait.data.tokenising.PIECE", 1)  # one piece a batch, or four on two cores

    class Dies(Bytes):
        def encode_batch(self, texts, specials=True, *, control=True):
            if self.calls > 20:
                raise KeyboardInterrupt
            return super().encode_batch(texts, specials, control=control)

    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in DOCUMENTS))
    with pytest.raises(KeyboardInterrupt):
        again(tmp_path, Dies())
    assert 0 < len(files(tmp_path)) < 5 and not list(tmp_path.glob("cache/*/whole.json"))
    tokenizer = Bytes()
    assert again(tmp_path, tokenizer) == WHOLE and tokenizer.calls < 35


@pytest.mark.parametrize("where", ["whole.json", "000003.tokens"])
def test_a_fault_after_every_so_many_bytes_of_a_write_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
):
    """A write that fails, at any byte, with the disk full; then the next start."""
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in DOCUMENTS))

    class Full(io.FileIO):
        left = 0

        def write(self, data) -> int:
            part = bytes(data)[: Full.left]
            Full.left -= len(part)
            if len(part) < len(data):
                super().write(part)
                raise OSError(28, "No space left on device")
            return super().write(data)

    real = Path.open

    def opened(path: Path, mode: str = "r", *rest, **more):
        return Full(path, "w") if path.name.startswith(where) and mode == "wb" else real(path, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", opened)
    for after in [*range(0, 300, 23), 700, 1000]:
        Full.left = after
        try:
            again(tmp_path, Bytes())
        except DataError as error:
            assert "No space left on device" in str(error)
            (folder,) = (tmp_path / "cache").iterdir()
            assert not (folder / where).exists() and not list(folder.glob("*.writing"))
        else:
            assert after > 100
            break
    else:
        pytest.fail("the write never came to an end")
    monkeypatch.undo()
    assert again(tmp_path, Bytes()) == WHOLE


def test_a_process_killed_while_it_writes_is_survived(tmp_path: Path):
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in DOCUMENTS))
    code = f"""
import os, sys
from pathlib import Path
from tests.data.making import Bytes
from plait.data import shards
from plait.data.store import tokenised
replace, left = os.replace, [3]
def killed(new, path):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), 9)
    replace(new, path)
shards.os.replace = killed
tokenised({str(tmp_path / "text.jsonl")!r}, Bytes(), cache={str(tmp_path / "cache")!r}, shard=300)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], timeout=100).returncode == -9
    assert len(files(tmp_path)) == 2 and len(list(tmp_path.glob("cache/*/*.writing"))) == 1
    assert again(tmp_path, Bytes()) == WHOLE
    assert not list(tmp_path.glob("cache/*/*.writing"))


def test_a_cache_that_cannot_be_is_said(tmp_path: Path):
    (tmp_path / "text.jsonl").write_text('{"text": "a"}')
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="there can be no cache of tokens"):
        tokenised(tmp_path / "text.jsonl", Bytes(), cache=tmp_path / "file")


def _build(folder: Path) -> None:
    assert again(folder, Bytes()) == WHOLE


def test_two_starts_at_once_agree(tmp_path: Path):
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in DOCUMENTS))
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=_build, args=(tmp_path,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]


# Parts


def test_a_part_is_kept_for_evaluation_between_two_documents(tmp_path: Path):
    tokens = store(tmp_path, DOCUMENTS, shard=300)
    train, valid = tokens.split(0.1)
    assert text(train) + text(valid) == WHOLE and text(train).endswith("\n")
    assert abs(len(valid) - 0.1 * len(tokens)) < 20
    assert train.n_documents + valid.n_documents == 40
    ends = [document + "\n" for document in DOCUMENTS][train.n_documents :]
    assert [bytes(valid.read(*valid.document(n)).tolist()).decode() for n in range(valid.n_documents)] == ends
    assert valid.borders(0, len(valid)).tolist() == np.cumsum([len(end) for end in ends]).tolist()[:-1]
    with pytest.raises(DataError, match="document: it is"):
        valid.document(valid.n_documents)


def test_one_long_document_is_cut_at_the_fraction(tmp_path: Path):
    tokens = store(tmp_path, ["x" * 1000], after=())
    train, valid = tokens.split(0.1)
    assert (len(train), len(valid)) == (900, 100)
    assert (train.n_documents, valid.n_documents, valid.document(0)) == (1, 1, (0, 100))
    with pytest.raises(DataError, match="valid_fraction: 0.0001 of 1000 tokens"):
        tokens.split(0.0001)


def test_the_users_cache_is_where_he_says(monkeypatch: pytest.MonkeyPatch):
    assert cache_folder() == Path(os.environ["PLAIT_CACHE"]) / "tokens"
    monkeypatch.delenv("PLAIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/plait/tokens")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("~/.cache/plait/tokens").expanduser()


# With real tokenizers


@pytest.mark.parametrize("kind", ["byte-bpe", "bpe", "characters", "bytes"])
def test_a_cut_text_has_the_tokens_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str):
    """Pieces are cut where the vocabulary's rule cuts too; a control string is text."""
    monkeypatch.setattr(documents, "PIECE", 40)
    monkeypatch.setattr(documents, "BLOCK", 64)
    sentences = "The quick brown fox,  jumps over 12 lazy dogs; \n\n it's  naïve </s>  \n = café = \n\n\n北京 3.14\n"
    whole = sentences * 20
    tokenizer = train_tokenizer([whole], kind=kind, vocab_size=600)
    (tmp_path / "a.txt").write_text(whole, "utf-8")
    tokens = tokenised(tmp_path / "a.txt", tokenizer, cache=tmp_path, after=())
    assert tokens.read(0, len(tokens)).tolist() == tokenizer.encode(whole, False, control=False)
    assert tokenizer.eos not in tokens.read(0, len(tokens))


def test_progress_shows_on_a_terminal_and_not_in_a_pipe(monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        terminal = True

        def isatty(self) -> bool:
            return self.terminal

    for terminal, total in [(True, 1 << 21), (False, 1 << 21), (True, 100)]:
        stderr = Terminal()
        stderr.terminal = terminal
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setenv("TERM", "xterm")
        with progress.watched("tokenising", total) as read:
            read(total)
        assert ("tokenising" in stderr.getvalue()) == (terminal and total > 100)


def test_nothing_heavy_is_imported_before_it_is_used():
    code = "import plait.data.store, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "tokenizers", "pyarrow", "zstandard", "datasets", "rich"}.intersection(loaded)


@pytest.mark.slow
def test_a_text_larger_than_the_memory_allowed_is_tokenised_and_read(tmp_path: Path):
    """400 MB of text, twice that of tokens, in a process that may hold 300 MB of its own."""
    pytest.importorskip("resource")
    code = f"""
import resource, sys, random
from plait.data.store import tokenised
from plait.data.order import shuffled
from tests.data.making import Bytes
import numpy as np
resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, 300 << 20))
tokens = tokenised({str(tmp_path / "a.txt")!r}, Bytes(), cache={str(tmp_path)!r})
assert len(tokens) == 400 * 10**6 + 1 and len(tokens.shards) > 8
for n in range(1000):
    place = shuffled(n, 10**6, seed=0, epoch=0) * 400
    assert bytes(tokens.read(place, place + 20).tolist()).startswith(b"%012d" % place)
print("read")
"""
    with (tmp_path / "a.txt").open("w") as file:
        for start in range(0, 400 * 10**6, 400 * 1000):
            file.writelines(f"{place:012}{' word' * 77}..\n" for place in range(start, start + 400_000, 400))
    assert (tmp_path / "a.txt").stat().st_size == 400 * 10**6
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=900
    )
    assert done.stdout == "read\n", done.stderr
