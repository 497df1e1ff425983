"""Sentences: where a text may be cut, and how one that is too long is cut so that no part of it is lost."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from itertools import pairwise

from plait.generation.errors import GenerationError

_CLOSING = "\"'”’»)\\]"
# A mark that ends a sentence, what closes with it, and space; the full-width marks of Chinese and Japanese need none
_SENTENCE = re.compile(rf"[.!?…؟۔।॥][.!?…]*[{_CLOSING}]*\s+|[。！？｡][。！？｡…]*[”’」』）]*\s*")
_CLAUSE = re.compile(rf"[.!?…;:,،؛][{_CLOSING}]*\s+|[。！？｡，、；：][”’」』）]*\s*")
_SPACE = re.compile(r"\s+")
_NO_END = re.compile(r"(?:^|[\s(\"'])(?:\w|\w\.\w|mr|mrs|ms|dr|prof|st|vs|no|fig|etc|jr|sr|approx|bzw|usw|nr)\.$", re.I)
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")


def is_blank(text: str) -> bool:
    """Whether nothing in a text can be seen."""
    return all(unicodedata.category(character) in _INVISIBLE for character in text)


def sentences(text: str) -> list[str]:
    """A text cut behind its sentences; the pieces join to it. An initial or a common abbreviation ends none, and what
    goes on in lower case is no new one."""
    cuts = [m.end() for m in _SENTENCE.finditer(text) if m.end() < len(text) and _ends(text, m)]
    return _cut(text, cuts)


def _ends(text: str, found: re.Match[str]) -> bool:
    if not found.group()[-1].isspace():
        return True
    return not text[found.end()].islower() and not _NO_END.search(text[: found.start() + 1])


def fit(text: str, length: Callable[[str], int], longest: int) -> list[str]:
    """A text as parts of at most ``longest`` tokens, as few as go: cut behind sentences where that suffices, else
    behind clauses, words, and at last characters. The parts join to the text.

    ``length``: tokens of a part, all that goes around it counted. ``GenerationError`` where not even one character
    fits.
    """
    return _fit(text, length, longest, [sentences, _at(_CLAUSE), _at(_SPACE)])


def _fit(text: str, length: Callable[[str], int], longest: int, cutters: list[Callable[[str], list[str]]]) -> list[str]:
    if length(text) <= longest:
        return [text]
    if not cutters:
        return _by_characters(text, length, longest)
    cutter, *finer = cutters
    pieces = cutter(text)
    if len(pieces) == 1:
        return _fit(text, length, longest, finer)
    parts: list[str] = []
    held = ""
    for piece in pieces:
        if held and length(held + piece) > longest:
            parts += _fit(held, length, longest, finer)
            held = ""
        held += piece
    return [*parts, *_fit(held, length, longest, finer)]


def _by_characters(text: str, length: Callable[[str], int], longest: int) -> list[str]:
    parts: list[str] = []
    while text:
        low, high = 1, len(text)
        while low < high:  # the most characters that fit
            middle = (low + high + 1) // 2
            low, high = (middle, high) if length(text[:middle]) <= longest else (low, middle - 1)
        end = low
        while 1 < end < len(text) and _goes_on(text[end - 1], text[end]):
            end -= 1
        end = low if _goes_on(text[end - 1], text[end : end + 1]) else end
        if length(text[:end]) > longest:
            raise GenerationError(
                f"longest: {longest} tokens do not hold {text[:end]!r} and what goes around it; give more."
            )
        parts.append(text[:end])
        text = text[end:]
    return parts


def _goes_on(before: str, after: str) -> bool:
    """Whether two neighbours are one character to the eye."""
    return bool(after) and (unicodedata.category(after) in ("Mn", "Mc", "Me") or "\u200d" in (before, after))


def _at(marks: re.Pattern[str]) -> Callable[[str], list[str]]:
    return lambda text: _cut(text, (m.end() for m in marks.finditer(text) if m.end() < len(text)))


def _cut(text: str, cuts: Iterable[int]) -> list[str]:
    return [text[start:end] for start, end in pairwise((0, *cuts, len(text)))]


def joined(parts: Iterable[str]) -> str:
    """Translated parts as one text: with a space between, unless a script without spaces stands at the seam."""
    text = ""
    for part in filter(None, (part.strip() for part in parts)):
        text += part if not text or _is_unspaced(text[-1]) or _is_unspaced(part[0]) else f" {part}"
    return text


def _is_unspaced(character: str) -> bool:
    """Chinese and Japanese characters and their marks, Thai, Lao, Khmer, Burmese."""
    code = ord(character)
    return (
        0x2E80 <= code <= 0xA4CF
        or 0xF900 <= code <= 0xFAFF
        or 0xFE30 <= code <= 0xFE4F
        or 0xFF00 <= code <= 0xFF65
        or (
            0x0E00 <= code <= 0x0EFF
            or 0x1000 <= code <= 0x109F
            or 0x1780 <= code <= 0x17FF
            or 0x20000 <= code <= 0x3FFFF
        )
    )
