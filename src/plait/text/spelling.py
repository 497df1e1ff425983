"""What a token says: the bytes it adds to a text, read from the decoder of a ``tokenizer.json``.

A decoder is a list of steps over the pieces of a text. Each step plait knows changes a piece by what it is and whether
it is the first, never by its neighbours: that is what lets text stream (see ``detokenizer``). No step cleans up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from plait.text.error import TokenizerError

# A piece is text until a byte-level step turns it into bytes. (piece, first) -> piece
Piece = str | bytes
Step = Callable[[Piece, bool], Piece]
Spelling = Callable[[str, bool], bytes]

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@cache
def byte_alphabet() -> dict[str, int]:
    """GPT-2's 256 printable characters, each for one byte (Radford et al. 2019, ``bytes_to_unicode``)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return alphabet | {chr(256 + shift): byte for shift, byte in enumerate(others)}


def byte_of(token: str) -> int | None:
    """The byte that a byte-fallback token such as ``<0xE4>`` stands for."""
    match = _BYTE.fullmatch(token)
    return int(match[1], 16) if match else None


def is_unicode(text: str) -> bool:
    """Whether the text is characters alone: half of a surrogate pair, which JSON can hold, has no bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def spelling(decoder: Mapping[str, Any] | None) -> Spelling:
    """The bytes of a token, by the decoder's JSON; no decoder joins tokens by spaces. TokenizerError if unknown."""
    steps = [_joined_by_spaces] if decoder is None else _steps(decoder)

    def spell(token: str, first: bool) -> bytes:
        piece: Piece = token
        for step in steps:
            piece = step(piece, first)
        return piece if isinstance(piece, bytes) else piece.encode()

    return spell


def separates(decoder: Mapping[str, Any] | None) -> bool:
    """Whether the decoder puts a space between tokens, and so before special ones too."""
    return decoder is None or decoder["type"] == "WordPiece"


def _steps(decoder: Mapping[str, Any]) -> list[Step]:
    if decoder["type"] == "Sequence":
        return [step for part in decoder["decoders"] for step in _steps(part)]
    if decoder["type"] not in _STEPS:
        raise TokenizerError(
            f"tokenizer.json: a decoder of type {decoder['type']!r} is not one that plait reads "
            f"({', '.join(sorted(_STEPS))}, Sequence)."
        )
    return [_STEPS[decoder["type"]](decoder)]


def _joined_by_spaces(piece: Piece, first: bool) -> Piece:
    return piece if first or isinstance(piece, bytes) else " " + piece


def _byte_level(decoder: Mapping[str, Any]) -> Step:
    alphabet = byte_alphabet()

    def step(piece: Piece, first: bool) -> Piece:
        try:
            return bytes(alphabet[character] for character in piece) if isinstance(piece, str) else piece
        except KeyError:  # an added token, spelled in its own characters
            return piece

    return step


def _byte_fallback(decoder: Mapping[str, Any]) -> Step:
    def step(piece: Piece, first: bool) -> Piece:
        byte = byte_of(piece) if isinstance(piece, str) else None
        return piece if byte is None else bytes([byte])

    return step


def _word_piece(decoder: Mapping[str, Any]) -> Step:
    prefix: str = decoder["prefix"]

    def step(piece: Piece, first: bool) -> Piece:
        if first or isinstance(piece, bytes):
            return piece
        return piece.removeprefix(prefix) if piece.startswith(prefix) else " " + piece

    return step


def _metaspace(decoder: Mapping[str, Any]) -> Step:
    mark: str = decoder["replacement"]
    drops = decoder.get("prepend_scheme", "always") != "never"

    def step(piece: Piece, first: bool) -> Piece:
        if isinstance(piece, bytes):
            return piece
        return (piece.removeprefix(mark) if first and drops else piece).replace(mark, " ")

    return step


def _replace(decoder: Mapping[str, Any]) -> Step:
    if "String" not in decoder["pattern"]:
        raise TokenizerError("tokenizer.json: a Replace decoder with a regular expression is not one that plait reads.")
    pattern, content = decoder["pattern"]["String"], decoder["content"]
    return lambda piece, first: piece if isinstance(piece, bytes) else piece.replace(pattern, content)


def _strip(decoder: Mapping[str, Any]) -> Step:
    content, start = decoder["content"], decoder["start"]
    if decoder["stop"]:
        raise TokenizerError("tokenizer.json: a Strip decoder with stop > 0 needs the text's end; plait reads stop 0.")

    def step(piece: Piece, first: bool) -> Piece:
        if not first or isinstance(piece, bytes):
            return piece
        stripped = piece.lstrip(content)
        return piece[min(start, len(piece) - len(stripped)) :]

    return step


def _fuse(decoder: Mapping[str, Any]) -> Step:
    return lambda piece, first: piece


_STEPS: dict[str, Callable[[Mapping[str, Any]], Step]] = {
    "ByteFallback": _byte_fallback,
    "ByteLevel": _byte_level,
    "Fuse": _fuse,
    "Metaspace": _metaspace,
    "Replace": _replace,
    "Strip": _strip,
    "WordPiece": _word_piece,
}
