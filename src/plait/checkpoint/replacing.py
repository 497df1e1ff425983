"""A folder, or a file, that appears whole or not at all, and takes another's place in one step."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from plait.checkpoint.notice import CheckpointError

_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_HERE = -100  # AT_FDCWD


@contextmanager
def whole_folder(target: Path, *, replaces: Collection[str] = ()) -> Iterator[Path]:
    """A new folder beside ``target`` to write into; at the end of the block it *is* ``target``.

    It is written and flushed to the disk under another name first: whatever fails before the last step, and whenever
    the machine stops, ``target`` is as it was. ``replaces``: the files of an older folder that go, as paths in it; the
    others are in the new one too, as hard links.
    """
    target = target.resolve()
    if os.path.ismount(target):
        raise CheckpointError(f"{target}: a mount point cannot be replaced in one step; save to a folder inside it.")
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.writing-{secrets.token_hex(4)}")
    new.mkdir()
    try:
        yield new
        if target.exists():
            _carry_over(target, new, frozenset(replaces))
        _flush(new)
        _take_the_place(new, target)
        _flush_names(target.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)  # what could not be finished, or the old one


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A new file beside ``target`` to write; at the end of the block it *is* ``target``, flushed to the disk."""
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.writing-{secrets.token_hex(4)}")
    try:
        yield new
        with new.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(new, target)
        _flush_names(target.parent)
    finally:
        new.unlink(missing_ok=True)


def _carry_over(old: Path, new: Path, replaced: Collection[str]) -> None:
    for folder, folders, files in os.walk(old):
        here = Path(folder).relative_to(old)
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in [*files, *links]:
            path = here / name
            if path.as_posix() not in replaced and not os.path.lexists(new / path):
                (new / here).mkdir(parents=True, exist_ok=True)
                _link(old / path, new / path)
        for name in folders:
            if name not in links and not any((old / here / name).iterdir()):
                (new / here / name).mkdir(parents=True, exist_ok=True)


def _link(old: Path, new: Path) -> None:
    try:
        os.link(old, new, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(old, new, follow_symlinks=False)


def _take_the_place(new: Path, target: Path) -> None:
    if not target.exists() or not any(target.iterdir()):
        os.replace(new, target)
    elif not _exchange(new, target):
        # Elsewhere than on Linux it takes two steps. The old folder comes back if the second fails.
        aside = target.with_name(f".{target.name}.replaced-{secrets.token_hex(4)}")
        os.replace(target, aside)
        try:
            os.replace(new, target)
        except OSError:
            os.replace(aside, target)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Two folders swap their names in one step, where the system can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return rename(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE) == 0


def _flush(folder: Path) -> None:
    """To the disk: every file, then the folders that name them."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    for path in [*(p for p in folder.rglob("*") if p.is_dir() and not p.is_symlink()), folder]:
        _flush_names(path)


def _flush_names(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
