"""Samples are made into ids once, whatever they are; what breaks is noticed and made anew, with the same counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from plait.data.error import DataError
from plait.data.kept import kept
from plait.data.lines import Tally, read_lines
from tests.data.making import Bytes

LINES = [f"sample {n}{'!' * (n % 7)}" for n in range(40)]


class Making:
    """Samples of a file's lines: a line's bytes, a lane that may be empty, and what is -100 but in one place."""

    def __init__(self, path: Path) -> None:
        self.path, self.made = path, 0

    def __call__(self, tally: Tally) -> Iterator[Sequence[Sequence[int]]]:
        for where, line in read_lines(self.path, tally):
            tally.read += 1
            if not line:
                tally.blank += 1
            elif line == "bad":
                tally.spoil(where, "it is bad")
            else:
                self.made += 1
                ids = list(line.encode())
                yield ids, [] if len(ids) % 2 else [70000], [-100] * (len(ids) - 1) + ids[-1:]


def written(folder: Path, lines: Sequence[str] = LINES) -> Path:
    (folder / "a.txt").write_text("\n".join([*lines, "", "bad", ""]))
    return folder / "a.txt"


def read(path: Path, **options) -> tuple[list[list[list[int]]], Tally, int]:
    """The samples, what was left out, and how many were made."""
    make = Making(path)
    given = {"settings": {}, "cache": path.parent / "cache", "tokenizer": Bytes(), **options}
    lanes, tally = kept([path], given.pop("tokenizer"), make, **given)
    assert len({len(lane) for lane in lanes}) == 1
    assert all(lane.lengths.tolist() == [len(lane[row]) for row in range(len(lane))] for lane in lanes)
    return [[lane[row].tolist() for lane in lanes] for row in range(len(lanes[0]))], tally, make.made


@pytest.mark.parametrize("shard", [1, 300, 10**6])
def test_samples_are_made_once_and_what_was_left_out_is_told_each_time(tmp_path: Path, shard: int):
    path = written(tmp_path)
    expected = [list(map(list, sample)) for sample in Making(path)(Tally())]
    samples, tally, made = read(path, shard=shard)
    assert samples == expected and made == 40
    assert len(list(tmp_path.glob("cache/*/*.tokens"))) == {1: 40, 300: 3, 10**6: 1}[shard]
    path = path.rename(tmp_path / "renamed.txt")
    again, counts, made = read(path, shard=shard)
    assert again == expected and made == 0 and counts == tally
    assert (counts.read, counts.blank, counts.bad) == (42, 1, 1) and "line 42: it is bad" in counts.first_bad


@pytest.mark.parametrize("change", ["settings", "tokenizer", "target", "content", "ending", "order"])
def test_another_file_tokenizer_or_setting_is_another_store(tmp_path: Path, change: str):
    path = written(tmp_path)
    other = tmp_path / "b.txt"
    other.write_text("another")
    tokenizer = Bytes()
    paths, options = [path, other], {"settings": {"length": 9}, "cache": tmp_path / "cache"}
    kept(paths, tokenizer, Making(path), **options)
    if change == "settings":
        options["settings"] = {"length": 8}
    elif change == "tokenizer":
        tokenizer = Bytes(300)
    elif change == "target":
        tokenizer.target = Bytes()  # type: ignore[attr-defined]
    elif change == "content":
        other.write_text("anothes")
    elif change == "ending":
        paths[1] = other.rename(tmp_path / "b.tsv")
    else:
        paths.reverse()
    make = Making(path)
    kept(paths, tokenizer, make, **options)
    assert make.made == 40 and len(list((tmp_path / "cache").iterdir())) == 2


@pytest.mark.parametrize("broken", ["cut", "missing", "flipped", "other", "counts", "no counts"])
def test_what_is_broken_is_noticed_and_made_anew(tmp_path: Path, broken: str):
    path = written(tmp_path)
    samples, tally, _ = read(path, shard=300)
    (folder,) = (tmp_path / "cache").iterdir()
    shard, whole = folder / "000001.tokens", folder / "whole.json"
    good = shard.read_bytes(), whole.read_bytes()
    if broken == "missing":
        shard.unlink()
    elif broken == "no counts":
        whole.unlink()
    elif broken == "counts":
        whole.write_bytes(good[1][:-9])
    elif broken == "flipped":
        shard.write_bytes(good[0][:17] + bytes([good[0][17] ^ 1]) + good[0][18:])
    else:
        shard.write_bytes(good[0][:-100] if broken == "cut" else (folder / "000000.tokens").read_bytes())
    assert read(path, shard=300) == (samples, tally, 40)
    assert (shard.read_bytes(), whole.read_bytes()) == good
    assert read(path, shard=300) == (samples, tally, 0)


def test_what_breaks_off_is_never_taken_for_whole(tmp_path: Path):
    path = written(tmp_path)

    class Dies(Making):
        def __call__(self, tally: Tally) -> Iterator[Sequence[Sequence[int]]]:
            for sample in super().__call__(tally):
                if self.made > 30:
                    raise KeyboardInterrupt
                yield sample

    with pytest.raises(KeyboardInterrupt):
        kept([path], Bytes(), Dies(path), settings={}, cache=tmp_path / "cache", shard=300)
    assert list(tmp_path.glob("cache/*/*.tokens")) and not list(tmp_path.glob("cache/*/whole.json"))
    samples, _, made = read(path, shard=300)
    assert len(samples) == made == 40


def test_what_makes_nothing_and_what_is_no_file_is_refused(tmp_path: Path):
    path = written(tmp_path)

    def nothing(tally: Tally) -> Iterator[Sequence[Sequence[int]]]:
        tally.refuse_nothing("pairs", 0)
        yield []

    with pytest.raises(DataError, match="nothing is left"):
        kept([path], Bytes(), nothing, settings={}, cache=tmp_path / "cache")
    assert not list(tmp_path.glob("cache/*/whole.json"))
    (tmp_path / "texts").mkdir()
    for name in ("b.txt", "c.txt"):
        (tmp_path / "texts" / name).write_text(json.dumps({}))
    with pytest.raises(DataError, match="texts: samples are read from files"):
        kept([tmp_path / "texts"], Bytes(), nothing, settings={}, cache=tmp_path / "cache")
