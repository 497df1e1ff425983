"""Labelled: sentences, or pairs of them, each with a class or a number, from files.

    .jsonl      {"text": ..., "label": ...}, and "text_pair" for a second text
    .tsv        columns of these names, which its first line gives
    others      the label, a space, the text: as TREC and fastText have it

Other common names of texts: see ``TEXTS``. Left out and counted: samples with a blank text, and bad lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from plait.data.error import DataError
from plait.data.lines import Tally, ending, is_unicode, read_lines, read_objects

TEXTS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("query", "passage"),
    ("sentence", None),
    ("text", None),
)
LABEL = "label"


class Sample(NamedTuple):
    """A text, or two, and what is to be said of it."""

    text: str
    second: str | None
    label: Any


def read_labelled(
    paths: str | Path | Sequence[str | Path], tally: Tally, *, until: str | None = None
) -> Iterator[Sample]:
    """The samples of files, as they are read; .gz and .zst too.

    Args:
        paths: files one after the other.
        tally: counts what is left out.
        until: a label ends before this, where it occurs in it: ":" makes DESC of TREC's DESC:manner.

    Raises DataError for a table whose columns have other names, and lines that are not UTF-8.
    """
    for path in [paths] if isinstance(paths, str | Path) else paths:
        reader = {".jsonl": _objects, ".tsv": _table}.get(ending(path), _lines)
        for where, sample in reader(path, tally):
            texts = [text for text in (sample.text, sample.second) if text is not None]
            if not all(is_unicode(text) for text in texts):
                tally.spoil(where, "it has half of a surrogate pair, which is no character")
            elif not all(text.strip() for text in texts):
                tally.blank += 1
            elif until and isinstance(sample.label, str):
                yield sample._replace(label=sample.label.partition(until)[0])
            else:
                yield sample


def _objects(path: str | Path, tally: Tally) -> Iterator[tuple[str, Sample]]:
    for where, value in read_objects(path, tally):
        names = _texts(value)
        texts = [value[name] for name in names]
        if not texts or not all(isinstance(text, str) for text in texts):
            tally.spoil(where, "it has no text")
        elif value.get(LABEL) is None:
            tally.spoil(where, f"it has no {LABEL}")
        else:
            yield where, Sample(texts[0], texts[1] if len(texts) > 1 else None, value[LABEL])


def _table(path: str | Path, tally: Tally) -> Iterator[tuple[str, Sample]]:
    lines = read_lines(path, tally)
    columns = next(lines, ("", ""))[1].split("\t")
    names = _texts(columns)
    if not names or LABEL not in columns:
        raise DataError(
            f"{path}: its first line must name the columns, a {LABEL} and text (and text_pair) among them; it is "
            f"{', '.join(columns)!r:.200}."
        )
    places = [columns.index(name) for name in (*names, LABEL)]
    for where, line in lines:
        tally.read += 1
        cells = line.split("\t")
        if not line.strip():
            tally.blank += 1
        elif len(cells) != len(columns):
            tally.spoil(where, f"it has {len(cells)} columns instead of {len(columns)}")
        else:
            *texts, label = (cells[place] for place in places)
            yield where, Sample(texts[0], texts[1] if len(texts) > 1 else None, label)


def _lines(path: str | Path, tally: Tally) -> Iterator[tuple[str, Sample]]:
    for where, line in read_lines(path, tally):
        tally.read += 1
        label, space, text = line.strip().partition(" ")
        if space:
            yield where, Sample(text, None, label.removeprefix("__label__"))
        elif label:
            tally.spoil(where, "it has no space between a label and a text")
        else:
            tally.blank += 1


def _texts(names: Any) -> list[str]:
    """Which of the names are those of texts."""
    for pair in TEXTS:
        found = [name for name in pair if name is not None]
        if all(name in names for name in found):
            return found
    return []
