"""Detokenizer: ids become text as they come, in whole characters.

Every id stands for some bytes, whatever comes after it. So a stream is one incremental UTF-8 decoder: a character split
over ids waits for its last byte, bytes that no later byte can complete become U+FFFD at once, nothing sent is taken
back, and an id costs the same after a million ids as after one. Joined deltas are the decoded whole by construction.
"""

from __future__ import annotations

import codecs
import copy
from collections.abc import Callable, Collection

_UTF8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """A stream of ids turned into a stream of text.

    ``spell(id, first)`` gives the bytes of an id, ``first`` for the one that opens the text; ids in ``skip`` say
    nothing. ``continues``: the ids go on from earlier text, so none of them is the first.
    """

    def __init__(
        self, spell: Callable[[int, bool], bytes], *, skip: Collection[int] = (), continues: bool = False
    ) -> None:
        self._spell = spell
        self._skip = skip
        self._first = not continues
        self._decoder = _UTF8("replace")

    def push(self, *ids: int) -> str:
        """The text that these ids complete; raises TokenizerError at an id that is not in the vocabulary."""
        text: list[str] = []
        for id in ids:
            spelling = self._spell(id, self._first)
            if id not in self._skip:
                self._first = False
                text.append(self._decoder.decode(spelling))
        return "".join(text)

    def fork(self) -> Detokenizer:
        """One that stands at the same place and goes its own way."""
        twin = copy.copy(self)
        twin._decoder = copy.copy(self._decoder)
        return twin

    def flush(self) -> str:
        """The text's end: U+FFFD for a character whose last bytes never came, else nothing."""
        return self._decoder.decode(b"", final=True)
