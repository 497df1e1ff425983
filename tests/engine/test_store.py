"""The store: what was packed is there again, mapped; what is broken or missing is packed anew. And the arena."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from plait.checkpoint import PlaitNotice
from plait.engine import store
from plait.engine.arena import gathered
from plait.engine.packed import Packed, pack, unpack

PARTS = {"weights": "abc", "dtype": "stored"}
NAMES = [("a.weight",), ("b.weight", "c.weight"), ("empty",)]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path))
    return tmp_path / "packed"


def matrix(names: tuple[str, ...]) -> Packed:
    generator = torch.Generator().manual_seed(len(names[0]))
    rows = 0 if names == ("empty",) else 20 * len(names)
    return pack(torch.randn(rows, 7, generator=generator), "BF16" if len(names) > 1 else "F32")


def never(names: tuple[str, ...]) -> Packed:
    raise AssertionError(f"{names} is packed again")


def same(found: dict[tuple[str, ...], Packed]) -> bool:
    return list(found) == NAMES and all(torch.equal(unpack(found[n]), unpack(matrix(n))) for n in NAMES)


def test_the_second_start_packs_nothing(place: Path) -> None:
    assert same(store.kept(PARTS, NAMES, matrix))
    again = store.kept(PARTS, NAMES, never)
    assert same(again)
    assert all(packed.data.data_ptr() % 64 == 0 for packed in again.values())
    assert [path.suffix for path in place.iterdir()] == [".packed"]
    assert store.kept(PARTS, NAMES[:1], never).keys() == {NAMES[0]}
    again[NAMES[0]].data.zero_()
    assert same(store.kept(PARTS, NAMES, never)), "a private mapping: the file is as it was"


@pytest.mark.parametrize("change", [{"weights": "abd"}, {"dtype": "float32"}, {"more": "x"}])
def test_other_weights_are_another_file(place: Path, change: dict[str, str]) -> None:
    store.kept(PARTS, NAMES, matrix)
    assert store.load({**PARTS, **change}, NAMES) is None
    store.kept({**PARTS, **change}, NAMES, matrix)
    assert len(list(place.iterdir())) == 2


def test_another_version_is_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    store.kept(PARTS, NAMES, matrix)
    monkeypatch.setattr(store, "VERSION", store.VERSION + 1)
    assert store.load(PARTS, NAMES) is None


BREAKS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "short": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "one byte lost within": lambda data: data[:200] + data[201:],
    "longer": lambda data: data + b"x",
    "other magic": lambda data: b"X" + data[1:],
    "other footer": lambda data: data.replace(b'"F32", 20', b'"F32", 99'),
    "noise": lambda data: bytes(range(256)) * 8,
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_file_is_made_anew_without_a_word(place: Path, broken: str) -> None:
    store.kept(PARTS, NAMES, matrix)
    (path,) = place.iterdir()
    path.write_bytes(BREAKS[broken](path.read_bytes()))
    assert store.load(PARTS, NAMES) is None
    assert same(store.kept(PARTS, NAMES, matrix))
    assert same(store.kept(PARTS, NAMES, never))


def test_the_file_of_other_weights_under_this_name_is_not_believed(place: Path) -> None:
    store.kept(PARTS, NAMES, matrix)
    (mine,) = place.iterdir()
    store.kept({"weights": "other"}, NAMES, matrix)
    (other,) = set(place.iterdir()) - {mine}
    os.replace(other, mine)
    assert store.load(PARTS, NAMES) is None


def test_names_that_are_not_there_are_packed(place: Path) -> None:
    store.kept(PARTS, NAMES[:1], matrix)
    assert same(store.kept(PARTS, NAMES, matrix))


def test_where_nothing_can_be_written_it_goes_on_and_says_so(place: Path) -> None:
    place.write_text("a file where the folder should be")
    with pytest.warns(PlaitNotice, match="not kept for the next start: .*packed: File exists"):
        assert same(store.kept(PARTS, NAMES, matrix))


def test_a_full_disk_leaves_nothing_behind(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(PlaitNotice, match="No space left on device"):
        assert same(store.kept(PARTS, NAMES, matrix))
    assert list(place.iterdir()) == []


def test_starts_at_the_same_time_do_not_disturb_each_other(place: Path) -> None:
    good: list[bool] = []
    starts = [threading.Thread(target=lambda: good.append(same(store.kept(PARTS, NAMES, matrix)))) for _ in range(8)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert good == [True] * 8
    assert [path.suffix for path in place.iterdir()] == [".packed"]


def test_the_least_recently_used_goes_first(place: Path) -> None:
    for i in range(3):
        store.kept({"weights": str(i)}, NAMES, matrix)
        for path in place.iterdir():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 100))
    size = next(place.iterdir()).stat().st_size
    store.kept({"weights": "0"}, NAMES, never)  # used now
    abandoned, young = place / "x.writing", place / "y.writing"
    abandoned.touch()
    young.touch()
    os.utime(abandoned, (0, 0))
    store.prune(limit=2 * size)
    assert [store.load({"weights": str(i)}, NAMES) is not None for i in range(3)] == [True, False, True]
    assert young.exists()
    assert not abandoned.exists()
    store.prune(limit=0)
    assert list(place.iterdir()) == [young]


def test_a_new_file_takes_the_place_of_old_ones(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(3):
        store.kept({"weights": str(i)}, NAMES, matrix)
    monkeypatch.setattr(store.prune, "__kwdefaults__", {"limit": 1, "keep": None})
    assert same(store.kept(PARTS, NAMES, matrix))
    assert store.load(PARTS, NAMES) is not None
    assert len(list(place.iterdir())) == 1


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PLAIT_CACHE")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.folder() == tmp_path / "plait" / "packed"
    for none in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", none)
        assert store.folder() == Path("/home/somebody/.cache/plait/packed")


def test_a_folder_in_no_ones_home_is_said_and_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_CACHE", "~nobody-at-all/x")
    with pytest.warns(PlaitNotice, match="not kept for the next start: ~nobody-at-all/x: there is no such home"):
        assert same(store.kept(PARTS, NAMES, matrix))


# The arena


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no huge pages")
def test_what_was_packed_in_memory_lies_side_by_side_from_a_huge_page_on() -> None:
    found = gathered({names: matrix(names) for names in NAMES})
    assert same(found)
    first, second = found[NAMES[0]].data, found[NAMES[1]].data
    assert first.data_ptr() % store.HUGE == 0 and second.data_ptr() % 64 == 0
    assert 0 <= second.data_ptr() - (first.data_ptr() + first.nbytes) < 64
