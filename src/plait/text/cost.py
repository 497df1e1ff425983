"""Cost: how many tokens a vocabulary spends on text, by byte, by word and by line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plait.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Counts over some text. ``words`` are what spaces divide; ``unknown`` the tokens that stand for what is lost."""

    bytes: int = 0
    words: int = 0
    lines: int = 0
    tokens: int = 0
    unknown: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    @property
    def per_byte(self) -> float | None:
        """Tokens for each byte of UTF-8; ``None`` of no text."""
        return self.tokens / self.bytes if self.bytes else None

    @property
    def per_word(self) -> float | None:
        """Tokens for each word; ``None`` without words."""
        return self.tokens / self.words if self.words else None

    @property
    def per_line(self) -> float | None:
        """Tokens for each line; ``None`` without lines."""
        return self.tokens / self.lines if self.lines else None


def cost(tokenizer: Tokenizer, texts: Iterable[str]) -> Cost:
    """What ``texts``, lines say, cost without special tokens around them; control strings in them are text."""
    total = Cost()
    for text in texts:
        ids = tokenizer.encode(text, specials=False, control=False)
        total += Cost(
            bytes=len(text.encode()),
            words=len(text.split()),
            lines=text.count("\n") or 1,
            tokens=len(ids),
            unknown=0 if tokenizer.unk is None else ids.count(tokenizer.unk),
        )
    return total
