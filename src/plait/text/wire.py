"""The few lines of protobuf's wire format that a sentencepiece ``ModelProto`` needs, so that protobuf is not needed.

Field numbers are those of sentencepiece_model.proto. A message that is appended to another is merged into it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum

_VARINT, _BYTES, _FIXED32 = 0, 2, 5
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # ModelProto
_PIECE, _SCORE, _TYPE = 1, 2, 3  # ModelProto.SentencePiece
_MODEL_TYPE, _BYTE_FALLBACK, _UNK_PIECE = 3, 35, 45  # TrainerSpec
_NAME, _DUMMY_PREFIX, _EXTRA_SPACES = 1, 3, 4  # NormalizerSpec
_BPE = 2


class PieceType(IntEnum):
    """What a piece is: the numbers of sentencepiece, and of tokenizer.ggml.token_type."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def bpe_model(pieces: Sequence[str], scores: Iterable[float], types: Sequence[int], *, add_dummy_prefix: bool) -> bytes:
    """A serialized ModelProto of a BPE with these pieces, whose text is cut as it is written."""
    unknown = next((piece for piece, type in zip(pieces, types, strict=True) if type == PieceType.UNKNOWN), "<unk>")
    trainer = _integer(_MODEL_TYPE, _BPE) + _integer(_BYTE_FALLBACK, PieceType.BYTE in types)
    trainer += _bytes(_UNK_PIECE, unknown.encode())
    normalizer = _bytes(_NAME, b"identity") + _integer(_DUMMY_PREFIX, add_dummy_prefix) + _integer(_EXTRA_SPACES, 0)
    lines = (
        _bytes(_PIECES, _bytes(_PIECE, piece.encode()) + _float(_SCORE, score) + _integer(_TYPE, type))
        for piece, score, type in zip(pieces, scores, types, strict=True)
    )
    return b"".join(lines) + _bytes(_TRAINER, trainer) + _bytes(_NORMALIZER, normalizer)


def without_dummy_prefix(model: bytes) -> bytes:
    """The model, cutting text that goes on from earlier text: no space is put before it."""
    return model + _bytes(_NORMALIZER, _integer(_DUMMY_PREFIX, 0))


def retyped(model: bytes, names: Collection[str], type: int) -> bytes:
    """The model with the pieces of these names given another type."""
    changed: list[bytes] = []
    for number, start, body, end in _fields(model):
        field = model[start:end]
        if number == _PIECES and _piece(model, body, end)[0] in names:
            field = _bytes(_PIECES, model[body:end] + _integer(_TYPE, type))
        changed.append(field)
    return b"".join(changed)


def is_bpe(model: bytes) -> bool:
    """Whether the model merges neighbours by score, and is no unigram."""
    trainers = [(body, end) for number, _, body, end in _fields(model) if number == _TRAINER]
    said = [
        _read_varint(model, first)[0]
        for body, end in trainers
        for number, _, first, _ in _fields(model, body, end)
        if number == _MODEL_TYPE
    ]
    return said[-1:] == [_BPE]


def pieces_of_type(model: bytes, type: int) -> list[str]:
    """The pieces of a type."""
    pieces = (_piece(model, body, end) for number, _, body, end in _fields(model) if number == _PIECES)
    return [piece for piece, its_type in pieces if its_type == type]


def _piece(model: bytes, start: int, end: int) -> tuple[str, int]:
    inner = {number: (first, last) for number, _, first, last in _fields(model, start, end)}
    first, last = inner[_PIECE]
    type = _read_varint(model, inner[_TYPE][0])[0] if _TYPE in inner else PieceType.NORMAL
    return model[first:last].decode(), type


def _fields(message: bytes, position: int = 0, end: int | None = None) -> Iterable[tuple[int, int, int, int]]:
    # number, start of the field, start and end of its value
    end = len(message) if end is None else end
    while position < end:
        start = position
        key, position = _read_varint(message, position)
        body = position
        match key & 7:
            case 0:
                _, position = _read_varint(message, position)
            case 1:
                position += 8
            case 2:
                length, body = _read_varint(message, position)
                position = body + length
            case _:
                position += 4
        yield key >> 3, start, body, position


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(int(value))


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | _FIXED32) + struct.pack("<f", value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value
