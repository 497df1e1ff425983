"""Pairs: sentences and their translations, or any text and what answers it, from files.

    two files       line by line; different numbers of lines are refused
    .tsv            source, tab, target; what follows a second tab is left aside; so is one file of any other name
    .jsonl          an object with two strings, or with them inside "translation"

Left out and counted: pairs of which either side is blank, both sides together, so that nothing shifts; lines without a
tab, that are no object, or lack a string (bad). Over-long ones are a matter of tokens: see ``encode_pairs``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.data.error import DataError
from plait.data.lines import Tally, ending, is_unicode, read_lines, read_objects
from plait.data.longest import Longest, fit

Pair = tuple[str, str]
Row = tuple[str, str, str]  # where, source, target
Encode = Callable[[Sequence[str]], Sequence[Sequence[int]]]

TABLES = (".tsv", ".jsonl")
CHUNK = 4096  # pairs that are tokenised together


def read_pairs(
    paths: str | Path | Sequence[str | Path],
    tally: Tally,
    *,
    fields: tuple[str, str] | None = None,
    lowercase: bool = False,
) -> Iterator[Pair]:
    """The pairs of files, as they are read.

    Args:
        paths: two files to go side by side, or .tsv and .jsonl files one after the other; .gz and .zst of any.
        tally: counts what is read and left out.
        fields: the names of a .jsonl object's two strings; without, the first object must have no third, and its
            names and their order are those of all.
        lowercase: both sides.

    Raises DataError for other files, files of different length (at their end), and lines that are not UTF-8.
    """
    files = [paths] if isinstance(paths, str | Path) else list(paths)
    if len(files) == 1 or (files and all(ending(file) in TABLES for file in files)):
        rows = _tables(files, tally, fields)
    elif len(files) == 2 and not any(ending(file) in TABLES for file in files):
        rows = _side_by_side(files[0], files[1], tally)
    else:
        raise DataError(
            f"pairs: {', '.join(map(str, files)) or 'no file'} makes no pairs; give two text files of as many lines, "
            "or files that end in .tsv or .jsonl."
        )
    for where, source, target in rows:
        if not (is_unicode(source) and is_unicode(target)):
            tally.spoil(where, "it has half of a surrogate pair, which is no character")
        elif source.strip() and target.strip():
            yield (source.lower(), target.lower()) if lowercase else (source, target)
        else:
            tally.blank += 1


def encode_pairs(
    pairs: Iterable[Pair],
    tally: Tally,
    *,
    source: Encode,
    target: Encode,
    length: int,
    longest: Longest = "drop",
) -> Iterator[list[Sequence[int]]]:
    """Pairs as ids, source and target.

    Args:
        pairs: texts.
        tally: counts what is over-long, and what is cut.
        source, target: texts to ids with all that goes around them: see ``paired.encoders``.
        length: the most tokens of a side, those around the text included.
        longest: what becomes of a pair with a longer side; what is cut keeps its end token.

    Raises DataError where nothing is left.
    """
    if length < 2:
        raise DataError(f"length: {length} tokens do not hold a text and its end.")
    texts = iter(pairs)
    kept = 0
    while chunk := list(itertools.islice(texts, CHUNK)):
        for sides in zip(source([one for one, _ in chunk]), target([other for _, other in chunk]), strict=True):
            if (fitting := fit(sides, length, longest, tally)) is not None:
                kept += 1
                yield fitting
    tally.refuse_nothing("pairs", kept)


def _side_by_side(first: str | Path, second: str | Path, tally: Tally) -> Iterator[tuple[str, str, str]]:
    counts = [0, 0]
    for one, other in itertools.zip_longest(read_lines(first, tally), read_lines(second, tally)):
        counts = [counts[0] + (one is not None), counts[1] + (other is not None)]
        if one is not None and other is not None:
            tally.read += 1
            yield f"{one[0]} and {other[0]}", one[1], other[1]
    if counts[0] != counts[1]:
        raise DataError(
            f"{first} has {counts[0]} lines and {second} has {counts[1]}: line by line they are no pairs; give files "
            "of as many lines."
        )


def _tables(files: Sequence[str | Path], tally: Tally, fields: tuple[str, str] | None) -> Iterator[Row]:
    for file in files:
        if fields is None and ending(file) == ".jsonl":
            where, first = next(read_objects(file, Tally()), ("", None))
            fields = None if first is None else _only_two(_texts(first), where)
        yield from _table(file, tally, fields)


def _texts(value: dict[str, Any]) -> dict[str, Any]:
    inner = value.get("translation")
    return inner if isinstance(inner, dict) else value


def _table(path: str | Path, tally: Tally, fields: tuple[str, str] | None) -> Iterator[Row]:
    if ending(path) != ".jsonl":
        for where, line in read_lines(path, tally):
            tally.read += 1
            columns = line.split("\t")
            if len(columns) > 1:
                yield where, columns[0], columns[1]
            elif line.strip():
                tally.spoil(where, "it has no tab")
            else:
                tally.blank += 1
        return
    for where, value in read_objects(path, tally):
        assert fields is not None, "the first object's names"
        source, target = (_texts(value).get(name) for name in fields)
        if isinstance(source, str) and isinstance(target, str):
            yield where, source, target
        else:
            tally.spoil(where, f"it has no strings {fields[0]!r} and {fields[1]!r}")


def _only_two(texts: dict[str, Any], where: str) -> tuple[str, str]:
    names = [name for name, text in texts.items() if isinstance(text, str)]
    if len(names) != 2:
        raise DataError(
            f"{where}: it has {len(names)} strings ({', '.join(names) or 'none'}), and pairs have two; say which in "
            "fields."
        )
    return names[0], names[1]
