"""ByT5: every byte of a text is a token, three special ids before them, sentinels behind; no file lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from plait.text.control import split_control
from plait.text.error import TokenizerError
from plait.text.files import TokenizerFiles
from plait.text.tokenizer import Tokenizer

BYT5 = "ByT5Tokenizer"
_FIRST = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}  # in the order of their ids
_BYTES = 256


class ByteSegmenter:
    """Bytes as ids from ``start`` on; ``control``: names that are no text."""

    merged: Mapping[int, tuple[int, int]] = MappingProxyType({})

    def __init__(self, control: Mapping[str, int], start: int) -> None:
        self.control, self.start = control, start
        self._names = {id: name for name, id in control.items()}
        self.size = max(*self._names, start + _BYTES - 1) + 1

    def segment(self, text: str) -> list[int]:
        """The ids of a text; control strings become their ids."""
        return self.segment_parts(split_control(text, self.control))

    def segment_parts(self, parts: Sequence[str | int]) -> list[int]:
        """The ids of plain text, where no string is control, and of control ids between."""
        ids: list[int] = []
        for part in parts:
            ids += [part] if isinstance(part, int) else [byte + self.start for byte in part.encode()]
        return ids

    def segment_batch(self, texts: Sequence[str], control: bool) -> list[list[int]]:
        """The ids of each text."""
        return [self.segment(text) if control else self.segment_parts([text]) for text in texts]

    def token(self, id: int) -> str | None:
        """A control string, or the character of that number for a byte."""
        if self.start <= id < self.start + _BYTES:
            return chr(id - self.start)
        return self._names.get(id)

    def id(self, token: str) -> int | None:
        """The id spelled so."""
        if len(token) == 1 and ord(token) < _BYTES:
            return ord(token) + self.start
        return self.control.get(token)

    def spell(self, id: int, first: bool) -> bytes:
        """The byte that an id is, or the control string."""
        named = self._names.get(id)
        return bytes([id - self.start]) if named is None else named.encode()


def byt5(files: TokenizerFiles, write: Callable[[Path], None]) -> Tokenizer:
    """The tokenizer of a folder whose files name that class."""
    names = files.names(_FIRST)
    control = {names.get(role, usual): id for id, (role, usual) in enumerate(_FIRST.items())}
    start = len(_FIRST)
    sentinels = files.extra_ids(125)
    control |= {f"<extra_id_{i}>": start + _BYTES + i for i in range(sentinels)}
    control |= {token.content: id for id, token in files.added().items() if id >= start + _BYTES}
    named = {role: control[name] for role, name in names.items() if name in control}
    if len(control) < start or "eos" not in named:
        raise TokenizerError(f"{files.folder}: a ByT5 tokenizer needs three tokens, {', '.join(_FIRST)}, each its own.")
    return Tokenizer(
        segmenter=ByteSegmenter(control, start),
        write=write,
        suffix=(named["eos"],),
        named=named,
        special_ids=frozenset(control.values()),
    )
