"""Transcript: the text of one row while its tokens arrive, in whole characters, up to a stop string."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plait.generation.stops import StopStrings

if TYPE_CHECKING:
    from plait.text import Tokenizer

_CONTEXT = 8  # prompt tokens the detokenizer sees first: enough for a character in four bytes and a joined word


class Transcript:
    """Tokens in, text out. Special tokens have no text; ``""`` throughout without a tokenizer.

    ``context`` is what stood before: it is not repeated, but decides whether the first word begins with a space.
    """

    def __init__(self, tokenizer: Tokenizer | None, stops: Sequence[str] = (), context: Sequence[int] = ()) -> None:
        self._stops = StopStrings(stops)
        self._rows = 0 if tokenizer is None else len(tokenizer)
        self._detokenizer = None
        if tokenizer is not None:
            said = any(token not in tokenizer.special_ids for token in context[:-_CONTEXT])
            self._detokenizer = tokenizer.stream(skip_specials=True, continues=said)
        self.length = 0  # characters decoded so far, shown or held back
        for token in context[-_CONTEXT:]:
            self._decode(token)

    @property
    def stopped(self) -> bool:
        """Whether a stop string was met."""
        return self._stops.found is not None

    def echo(self, token: int) -> str:
        """The text of a prompt's token, in which no stop string is looked for."""
        text = self._decode(token)
        self.length += len(text)
        return text

    def push(self, token: int) -> str:
        """The text that can be shown once this token is known."""
        text = self._decode(token)
        self.length += len(text)
        return self._stops.push(text)

    def fork(self) -> Transcript:
        """One that has read the same and goes its own way."""
        twin = copy.copy(self)
        twin._stops = copy.copy(self._stops)
        twin._detokenizer = None if self._detokenizer is None else self._detokenizer.fork()
        return twin

    def close(self) -> str:
        """What is left to be shown when no token follows."""
        text = "" if self._detokenizer is None else self._detokenizer.flush()
        self.length += len(text)
        shown = self._stops.push(text)
        return shown if self.stopped else shown + self._stops.close()

    def _decode(self, token: int) -> str:
        # A model's table is often padded to more rows than the vocabulary has; those ids have no text.
        return "" if self._detokenizer is None or token >= self._rows else self._detokenizer.push(token)
