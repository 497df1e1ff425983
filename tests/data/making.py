"""A tokenizer of the smallest kind, and stores of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from plait.data.rows import Ragged
from plait.data.store import tokenised
from plait.data.tokens import Tokens

END = 10  # a byte that ends a text: the line feed


class Bytes:
    """Every byte of a text is its own id; ``calls`` counts the texts that were cut."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    eos: int | None = END

    def __init__(self, size: int = 256) -> None:
        self.size, self.calls = size, 0

    def __len__(self) -> int:
        return self.size

    def encode_batch(self, texts: Sequence[str], specials: bool = True, *, control: bool = True) -> list[list[int]]:
        assert not specials and not control
        self.calls += len(texts)
        return [list(text.encode()) for text in texts]

    def save(self, folder: str | Path) -> None:
        (Path(folder) / "tokenizer.json").write_text(json.dumps({"bytes": self.size}))


def store(folder: Path, documents: Iterable[str], **options) -> Tokens:
    """A store of the documents, each ended by ``END``, its shards in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return tokenised(folder / "text.jsonl", Bytes(), cache=folder / "cache", **options)


def in_memory(samples: Iterable[Sequence[Sequence[int]]]) -> tuple[Ragged, ...]:
    """The lanes of samples, which a store would keep."""
    return tuple(Ragged.of(lane) for lane in zip(*samples, strict=True))


def text(tokens: Tokens) -> str:
    """All of it."""
    return bytes(tokens.read(0, len(tokens)).tolist()).decode()
