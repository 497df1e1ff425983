"""Documents: the texts of sources one after the other, streamed, and a count of all that is left out.

A .txt file is one document, its text kept as it is, blank lines too; a line that is ``<|endoftext|>`` and nothing else
ends one document and begins another. With ``each="line"`` every line is a document, without its line end. A line of
.jsonl, a row of .parquet and of a data set of the hub is a document: the string in its field ``text``.

Left out and counted:
    blank       a document of white space alone
    bad         a line that is not UTF-8; one that is not JSON or not an object; no string where the text should be
    over_long   a line of .jsonl of more than 64 MiB
Nothing else is. A document of any length comes in pieces of at most ``PIECE`` characters, cut before the space of a
word where there is one: the rules of byte-level vocabularies cut there too, so the tokens are those of the whole.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, NamedTuple

from plait.data.error import DataError
from plait.data.sources import Source, hub_rows, opened, parquet_rows

PIECE = 1 << 18  # characters
BLOCK = 1 << 18  # bytes read at once
LONGEST = 64 << 20  # bytes of a line of .jsonl with its end, which is in memory whole
END = "<|endoftext|>"  # alone on a line: how corpora in one file part their texts

Each = Literal["file", "line"]


class Piece(NamedTuple):
    """A stretch of a document; ``first`` begins one, ``last`` ends it."""

    text: str
    first: bool
    last: bool


@dataclass(kw_only=True)
class Counts:
    """What was read, and what was left out. ``first_bad`` says where the first bad line is, and what is wrong."""

    documents: int = 0
    bytes: int = 0  # of text, as UTF-8
    blank: int = 0
    over_long: int = 0
    bad: int = 0
    first_bad: str = ""

    def spoil(self, where: str, why: str) -> None:
        """Count a bad line."""
        self.bad += 1
        self.first_bad = self.first_bad or f"{where}: {why}"


class Documents:
    """The pieces of the documents of ``sources``. Iterating again reads again; ``counts`` are of the last reading.

    Args:
        sources: what ``find`` found.
        field: where the text is in a JSON object, a table's row.
        each: what a document is in a .txt file.
    """

    def __init__(self, sources: Iterable[Source], *, field: str = "text", each: Each = "file") -> None:
        self.sources, self.field, self.each = tuple(sources), field, each
        self.counts = Counts()
        self.read = 0  # bytes of files, packed as they are, for a display

    def __iter__(self) -> Iterator[Piece]:
        self.counts, self.read = Counts(), 0
        counts = self.counts
        for source in self.sources:
            before = self.read
            for piece in self._read(source):
                counts.bytes += len(piece.text.encode())
                counts.documents += piece.first
                yield piece
            self.read = before + source.size
        if not counts.documents:
            why = f" The first bad line is {counts.first_bad}." if counts.bad else ""
            raise DataError(f"{', '.join(source.name for source in self.sources)}: there is no text in it.{why}")

    def _read(self, source: Source) -> Iterator[Piece]:
        if source.kind in ("parquet", "hub"):
            rows = parquet_rows if source.kind == "parquet" else hub_rows
            for number, value in enumerate(rows(source, self.field), 1):
                yield from self._document(value, f"{source.name}, row {number}")
            return
        with opened(source) as file:
            if source.kind == "jsonl":
                yield from self._objects(file, source)
            elif self.each == "line":
                for where, line in self._lines(file, source.name):
                    if (text := self._decoded(line, where)) is not None:
                        yield from self._document(text.rstrip("\r\n"), where)
            else:
                for ends, texts in itertools.groupby(_parted(self._text(file, source.name)), lambda text: text is None):
                    if not ends:
                        yield from self._pieces(text for text in texts if text is not None)

    def _objects(self, file: BinaryIO, source: Source) -> Iterator[Piece]:
        for where, line in self._lines(file, source.name):
            if not line.strip():
                self.counts.blank += 1
                continue
            try:
                value = json.loads(line)
            except UnicodeDecodeError:
                self.counts.spoil(where, "it is not UTF-8")
            except (ValueError, RecursionError):
                self.counts.spoil(where, "it is not JSON")
            else:
                yield from self._document(value.get(self.field) if isinstance(value, dict) else None, where)

    def _document(self, text: Any, where: str) -> Iterator[Piece]:
        """A whole text's pieces; none where it is no text."""
        if not isinstance(text, str):
            self.counts.spoil(where, f"it has no string in a field {self.field!r}")
        elif not _is_unicode(text):
            self.counts.spoil(where, "it has half of a surrogate pair, which is no character")
        else:
            yield from self._pieces(text[at : at + PIECE] for at in range(0, len(text) or 1, PIECE))

    def _pieces(self, texts: Iterable[str]) -> Iterator[Piece]:
        """One document from its text in parts, which are cut anew."""
        held, first = "", True
        for text in texts:
            held += text
            while len(held) > PIECE:
                place = _place(held[:PIECE])
                yield Piece(held[:place], first, False)
                held, first = held[place:], False
        if first and (not held or held.isspace()):
            self.counts.blank += 1
        else:
            yield Piece(held, first, True)

    # Bytes

    def _lines(self, file: BinaryIO, name: str) -> Iterator[tuple[str, bytes]]:
        """Lines with where they are; one longer than ``LONGEST`` is left out."""
        number = 0
        while line := file.readline(LONGEST + 1):
            number += 1
            self.read += len(line)
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if len(line) <= LONGEST:
                yield f"{name}, line {number}", line
                continue
            self.counts.over_long += 1
            while line and not line.endswith(b"\n"):
                line = file.readline(LONGEST)

    def _text(self, file: BinaryIO, name: str) -> Iterator[str]:
        """Decoded text, some lines at a time, or a part of a longer one; lines that are not UTF-8 are left out."""
        number = 0
        for block in _blocks(file):
            self.read += len(block)
            try:
                yield block.decode()
            except UnicodeDecodeError:
                for ahead, line in enumerate(_LINES.findall(block), 1):
                    if (text := self._decoded(line, f"{name}, line {number + ahead}")) is not None:
                        yield text
            number += block.count(b"\n")

    def _decoded(self, line: bytes, where: str) -> str | None:
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.counts.spoil(where, "it is not UTF-8")
            return None


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Bytes up to the end of a line, or of a character in one that is longer than a block."""
    held = file.read(BLOCK).removeprefix(codecs.BOM_UTF8)
    while held:
        end = held.rfind(b"\n") + 1 or _whole(held)
        yield held[:end]
        more = file.read(BLOCK)
        if not more and held[end:]:
            yield held[end:]
            return
        held = held[end:] + more


def _whole(data: bytes) -> int:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return len(data) - len(decoder.getstate()[0]) or len(data)


_LINES = re.compile(rb"[^\n]*\n|[^\n]+")
_END_LINE = re.compile(rf"^{re.escape(END)}(?:\r?\n|\Z)", re.MULTILINE)


def _parted(texts: Iterable[str]) -> Iterator[str | None]:
    """The same texts, and None at each line that ends a document."""
    for text in texts:
        for index, part in enumerate(_END_LINE.split(text) if END in text else (text,)):
            if index:
                yield None
            if part:
                yield part


_PLACES = (
    re.compile(r".*(?= \S)", re.DOTALL),  # before the space of a word
    re.compile(r".*\S\n(?=\S)", re.DOTALL),  # after a line, no blank one next to it
    re.compile(r".*\n", re.DOTALL),
)


def _place(text: str) -> int:
    """Where to cut: as far back as can be, where a tokenizer cuts too."""
    ends = (match.end() for pattern in _PLACES if (match := pattern.match(text)))
    return next((end for end in ends if end), len(text))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
