"""Lines: samples that stand one to a line, with where each stands, and a count of those that are left out.

A line ends at a line feed, with or without a carriage return before it, and nowhere else: the line separators of
Unicode are text. A file without a line feed at its end has its last line all the same.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.data.error import DataError
from plait.data.sources import Source, find, opened


@dataclass(kw_only=True)
class Tally:
    """What was read, and what was left out.

    blank: nothing but white space where a text should be. over_long: more tokens than are allowed. bad: not what the
    format asks for; ``first_bad`` says where the first is, and what is wrong. cut: over-long ones that were kept.
    bytes: of files, unpacked.
    """

    read: int = 0
    bytes: int = 0
    blank: int = 0
    over_long: int = 0
    cut: int = 0
    bad: int = 0
    first_bad: str = ""

    def spoil(self, where: str, why: str) -> None:
        """Count a bad line."""
        self.bad += 1
        self.first_bad = self.first_bad or f"{where}: {why}"

    def facts(self) -> dict[str, int | float]:
        """The counts by name."""
        return {"read": self.read, "blank": self.blank, "over_long": self.over_long, "cut": self.cut, "bad": self.bad}

    def refuse_nothing(self, name: object, kept: int) -> None:
        """DataError where nothing was kept, with the reasons."""
        if not kept:
            why = ", ".join(f"{number} {what.replace('_', '-')}" for what, number in self.facts().items() if number)
            first = f"; the first bad one is {self.first_bad}" if self.first_bad else ""
            raise DataError(f"{name}: nothing is left of it ({why or 'it is empty'}{first}).")


def one_file(path: str | Path) -> Source:
    """The file of a name; DataError where it is none, or several."""
    found, _ = find(path)
    if len(found) > 1 or found[0].kind == "hub":
        raise DataError(f"{path}: samples are read from files; name one, or several one by one.")
    return found[0]


def read_lines(path: str | Path, tally: Tally) -> Iterator[tuple[str, str]]:
    """The lines of a file, packed or not, without their ends, each with where it stands.

    Raises DataError at a line that is not UTF-8.
    """
    source = one_file(path)
    with opened(source) as file:
        for number, line in enumerate(file, 1):
            tally.bytes += len(line)
            where = f"{source.name}, line {number}"
            try:
                yield where, line.removeprefix(codecs.BOM_UTF8 if number == 1 else b"").rstrip(b"\r\n").decode()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}: it is not UTF-8 (byte 0x{error.object[error.start]:02X}); convert it first."
                ) from None


def read_values(path: str | Path, tally: Tally) -> Iterator[tuple[str, Any]]:
    """What the lines of a .jsonl file say; one that is not JSON is counted as bad, and an empty one as blank."""
    for where, line in read_lines(path, tally):
        tally.read += 1
        if not line.strip():
            tally.blank += 1
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            tally.spoil(where, "it is not JSON")
            continue
        yield where, value


def read_objects(path: str | Path, tally: Tally) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a .jsonl file; a line that is none is counted as bad."""
    for where, value in read_values(path, tally):
        if isinstance(value, dict):
            yield where, value
        else:
            tally.spoil(where, "it is no JSON object")


def is_unicode(text: str) -> bool:
    """Whether it has no half of a surrogate pair, which JSON can spell and no tokenizer can read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def ending(path: str | Path) -> str:
    """What a file's name ends in, packing aside: ".tsv" of a.tsv.gz."""
    return Path(Path(path).name.removesuffix(".gz").removesuffix(".zst")).suffix
