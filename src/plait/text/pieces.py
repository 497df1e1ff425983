"""A vocabulary cut by sentencepiece: one model, or Marian's pair of models over one list of names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from sentencepiece import SentencePieceProcessor

from plait.text.control import split_control
from plait.text.error import TokenizerError
from plait.text.spelling import byte_of
from plait.text.wire import PieceType, retyped, without_dummy_prefix

_SPACE = "▁"


class PieceSegmenter:
    """A sentencepiece model as a :class:`~plait.text.tokenizer.Segmenter`; its ids are the model's.

    ``added``: names and ids beyond the model's, all control. ``sentinels``: so many ``<extra_id_i>`` are added too,
    numbered down from the end, where the model has none (T5). ``control``: names in the model that count as control,
    though it would cut text into them. ``prefix_each``: the space the model puts before a text is put before each
    stretch of text between control ids, not before the first alone.
    """

    merged: Mapping[int, tuple[int, int]] = MappingProxyType({})

    def __init__(
        self,
        model: bytes,
        *,
        added: Mapping[str, int] | None = None,
        sentinels: int = 0,
        control: Collection[str] = (),
        prefix_each: bool = False,
    ) -> None:
        processor = processor_of(model)
        ids = list(range(processor.GetPieceSize()))
        stored: dict[str, int] = dict(zip(processor.IdToPiece(ids), ids, strict=True))
        fixed = {name for name, is_control in zip(stored, processor.IsControl(ids), strict=True) if is_control}
        named = {name for name in control if name in stored and stored[name] != processor.unk_id()}
        if not named <= fixed:
            model = retyped(model, named, PieceType.CONTROL)
            processor = processor_of(model)
        last = len(ids) + sentinels - 1
        extra = {f"<extra_id_{index}>": last - index for index in range(sentinels) if "<extra_id_0>" not in stored}
        extra |= {name: id for name, id in (added or {}).items() if name not in stored}
        self.model = model
        self.control = {name: stored[name] for name in stored if name in fixed | named} | extra
        self._ids = stored | extra
        self._tokens = {id: name for name, id in self._ids.items()}
        self.size = max(self._tokens) + 1
        self._unknown = processor.unk_id()
        self._first = processor
        self._drops_space = processor.Normalize("a").startswith(_SPACE)
        self._prefix_each = prefix_each or not self._drops_space

    @cached_property
    def _later(self) -> SentencePieceProcessor:
        return self._first if self._prefix_each else processor_of(without_dummy_prefix(self.model))

    def segment(self, text: str) -> list[int]:
        """The ids of a text; control strings become their ids."""
        return self.segment_parts(split_control(text, self.control))

    def segment_parts(self, parts: Sequence[str | int]) -> list[int]:
        """The ids of plain text, where no string is control, and of control ids between."""
        ids: list[int] = []
        for index, part in enumerate(parts):
            processor = self._first if index == 0 else self._later
            ids += [part] if isinstance(part, int) else processor.EncodeAsIds(part)
        return ids

    def segment_batch(self, texts: Sequence[str], control: bool) -> list[list[int]]:
        """The ids of each text."""
        return [self.segment(text) if control else self.segment_parts([text]) for text in texts]

    def token(self, id: int) -> str | None:
        """The vocabulary's own spelling of an id."""
        return self._tokens.get(id)

    def id(self, token: str) -> int | None:
        """The id spelled so in the vocabulary."""
        return self._ids.get(token)

    def spell(self, id: int, first: bool) -> bytes:
        """The bytes that an id adds to a text."""
        token = self._tokens[id]
        if token in self.control or id == self._unknown:
            return token.encode()
        byte = byte_of(token) if self._first.IsByte(id) else None
        return _spelled(token, first and self._drops_space) if byte is None else bytes([byte])


class MarianSegmenter:
    """One side of a Marian model: a sentencepiece model cuts the text, a list of names gives the ids.

    ``model`` is that of the side's language. With ``codes`` a text may begin with the code of the language to translate
    into, ``>>fra<<``, where the vocabulary has it. ``special``: the names that are no text.
    """

    merged: Mapping[int, tuple[int, int]] = MappingProxyType({})

    def __init__(
        self, model: bytes, vocab: Mapping[str, int], *, unknown: str, special: Collection[str], codes: bool = True
    ) -> None:
        if unknown not in vocab:
            raise TokenizerError(f"vocab.json: the unknown token {unknown!r} is not in it.")
        self._processor = processor_of(model)
        self._vocab, self._codes = vocab, codes
        self._tokens = {id: token for token, id in vocab.items()}
        self._unknown = vocab[unknown]
        self.control = {token: vocab[token] for token in special if token in vocab}
        self.size = max(self._tokens) + 1

    def segment(self, text: str) -> list[int]:
        """The ids of a text; control strings become their ids."""
        return self.segment_parts(split_control(text, self.control))

    def segment_parts(self, parts: Sequence[str | int]) -> list[int]:
        """The ids of plain text, where no string is control, and of control ids between."""
        ids: list[int] = []
        for index, part in enumerate(parts):
            if isinstance(part, int):
                ids.append(part)
                continue
            coded = self._codes and index == 0 and part.startswith(">>") and "<<" in part
            code = part[: part.find("<<") + 2] if coded else ""
            pieces: list[str] = self._processor.EncodeAsPieces(part[len(code) :])
            ids += [self._vocab.get(piece, self._unknown) for piece in ([code] if code else []) + pieces]
        return ids

    def segment_batch(self, texts: Sequence[str], control: bool) -> list[list[int]]:
        """The ids of each text."""
        return [self.segment(text) if control else self.segment_parts([text]) for text in texts]

    def token(self, id: int) -> str | None:
        """The vocabulary's own spelling of an id."""
        return self._tokens.get(id)

    def id(self, token: str) -> int | None:
        """The id spelled so in the vocabulary."""
        return self._vocab.get(token)

    def spell(self, id: int, first: bool) -> bytes:
        """The bytes that an id adds to a text."""
        token = self._tokens[id]
        return token.encode() if token in self.control else _spelled(token, first)


def _spelled(token: str, drops_space: bool) -> bytes:
    return (token.removeprefix(_SPACE) if drops_space else token).replace(_SPACE, " ").encode()


def processor_of(model: bytes) -> SentencePieceProcessor:
    """A sentencepiece model ready to cut text; raises TokenizerError where the bytes are none."""
    if not model:
        raise TokenizerError("sentencepiece: the model cannot be read (it is empty).")
    try:
        return SentencePieceProcessor(model_proto=model)
    except Exception as error:
        raise TokenizerError(f"sentencepiece: the model cannot be read ({error}).") from None
