"""Tokenizer: text to ids and back, one record whatever wrote the vocabulary.

What differs between vocabularies is a :class:`Segmenter`. Everything said once lives here: which ids go around a text,
what decodes and streams, how a chat becomes ids, and that control strings in a user's text stay text.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from plait.text.chat_template import ChatTemplate
from plait.text.control import control_parts, mark_control
from plait.text.detokenizer import Detokenizer
from plait.text.error import TokenizerError
from plait.text.pairs import Pair, joined

Part = str | int


class Segmenter(Protocol):
    """A vocabulary and its rule for cutting text, over ``tokenizers`` or ``sentencepiece``."""

    @property
    def size(self) -> int:
        """How many ids there are: the largest and one."""
        ...

    @property
    def control(self) -> Mapping[str, int]:
        """The strings that stand for one control id when a template, or a raw prompt, spells them."""
        ...

    @property
    def merged(self) -> Mapping[int, tuple[int, int]]:
        """Of ids that BPE merged, the two they were merged from; none of other vocabularies."""
        ...

    def segment(self, text: str) -> list[int]:
        """The ids of a text; control strings become their ids."""
        ...

    def segment_parts(self, parts: Sequence[Part]) -> list[int]:
        """The ids of one text made of plain text, where no string is control, and of control ids."""
        ...

    def segment_batch(self, texts: Sequence[str], control: bool) -> list[list[int]]:
        """The ids of each text; control strings become their ids, or with ``control=False`` are text."""
        ...

    def token(self, id: int) -> str | None:
        """The vocabulary's own spelling of an id."""
        ...

    def id(self, token: str) -> int | None:
        """The id spelled so in the vocabulary."""
        ...

    def spell(self, id: int, first: bool) -> bytes:
        """The bytes that an id adds to a text, ``first`` for the one that opens it."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokenizer:
    """Text to ids (``encode``, ``chat``) and back (``decode``, ``stream``).

    ``prefix`` and ``suffix`` are the ids put around a text with ``specials``; ``named`` the ids with a role (``bos``,
    ``eos``, ``pad``, ``unk``, ``cls``, ``sep``, ``mask``); ``special_ids`` all that are no text. ``write`` saves it to
    a folder. ``target`` is the tokenizer of the other side, where source and target are cut by different rules.
    ``pair`` is the form of two texts in one row.
    """

    segmenter: Segmenter
    write: Callable[[Path], None]
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    named: Mapping[str, int] = field(default_factory=dict[str, int])
    special_ids: frozenset[int] = frozenset()
    chat_template: ChatTemplate | None = None
    target: Tokenizer | None = None
    pair: Pair | None = None

    def encode(self, text: str, specials: bool = True, *, control: bool = True) -> list[int]:
        """The ids of ``text``, within ``prefix`` and ``suffix`` where ``specials``.

        A control string in it (``<|im_end|>``) becomes its control id, as in a raw prompt; with ``control=False`` it is
        text like any other. Empty text gives the specials alone, or no ids. Nothing is added to or taken from what the
        text spells: a text that begins with the BOS string and gets specials has two; encode rendered chat without.
        Raises TokenizerError (a ValueError) where the text holds a lone surrogate.
        """
        _check_text(text)
        if not isinstance(specials, bool):
            raise TokenizerError(
                f"specials: {specials!r} is neither True nor False; two texts in a row are encode_pair(first, second)."
            )
        ids = self.segmenter.segment(text) if control else self.segmenter.segment_parts([text])
        return [*self.prefix, *ids, *self.suffix] if specials else ids

    def encode_batch(self, texts: Sequence[str], specials: bool = True, *, control: bool = True) -> list[list[int]]:
        """``encode`` of each text, at once: a vocabulary that ``tokenizers`` cuts by keeps all cores busy."""
        for text in texts:
            _check_text(text)
        found = self.segmenter.segment_batch(texts, control)
        return [[*self.prefix, *ids, *self.suffix] for ids in found] if specials else found

    def encode_pair(self, first: str, second: str, *, control: bool = True) -> tuple[list[int], list[int]]:
        """The ids of two texts in one row, a query and a passage say, and the type of each: what a reranker reads.

        BERT's is [CLS] a [SEP] b [SEP], of types 0 and from b on 1; RoBERTa's <s> a </s></s> b </s>, all of type 0; a
        tokenizer.json says its own. ``control`` as in ``encode``. Raises TokenizerError where the tokenizer has no form
        for two texts.
        """
        if self.pair is None:
            raise TokenizerError("encode_pair: this tokenizer has no form for two texts; write them as one.")
        parts = [self.encode(text, specials=False, control=control) for text in (first, second)]
        return joined(self.pair, *parts)

    def decode(self, ids: Iterable[int], skip_specials: bool = False, *, continues: bool = False) -> str:
        """The text of ``ids``, without clean-up; bytes that are no character become U+FFFD.

        Vocabularies that mark the start of a word by a space drop that space at the start of a text; with
        ``continues`` the ids go on from earlier text and keep it. Raises TokenizerError at an id that is none.
        """
        skip = self.special_ids if skip_specials else ()
        spelled: list[bytes] = []
        for id in ids:
            spelling = self._spell(id, not spelled and not continues)
            if id not in skip:
                spelled.append(spelling)
        return b"".join(spelled).decode("utf-8", "replace")

    def stream(self, skip_specials: bool = False, *, continues: bool = False) -> Detokenizer:
        """A detokenizer whose joined text is ``decode`` of all ids pushed."""
        return Detokenizer(self._spell, skip=self.special_ids if skip_specials else (), continues=continues)

    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """The ids of a conversation rendered by the chat template, which alone supplies the control ids.

        ``messages``: each a ``role`` and a ``content``; ``variables`` go to the template (``tools``, ...). Control
        strings in either are text. Nothing is added around the rendered text: the template says whether there is a BOS.
        Raises TokenizerError where there is no template, or where it fails or exceeds its limits.
        """
        if self.chat_template is None:
            raise TokenizerError("chat: this tokenizer has no chat template; encode a plain prompt instead.")
        marks, (messages, variables) = mark_control((messages, variables), self.segmenter.control)
        text = self.chat_template.render(messages, add_generation_prompt=add_generation_prompt, **variables)
        _check_text(text)
        if marks is None:
            return self.segmenter.segment(text)
        return self.segmenter.segment_parts(control_parts(text, self.segmenter.control, marks))

    def speaking(self, language: str) -> Tokenizer:
        """This tokenizer for texts in another language, whose code it puts around them, spelt as in the vocabulary:
        NLLB's ``"fra_Latn"``, mBART's ``"fr_XX"``, M2M-100's ``"__fr__"``.

        The language to translate into is a checkpoint's ``rules.forced_first`` (of mBART with its 25 languages,
        ``rules.start``): the code's id. Raises TokenizerError where there is no such code.
        """
        roles = {id for role, id in self.named.items() if role != "language"}
        now = {id for id in (*self.prefix, *self.suffix) if id not in roles}
        if len(now) != 1:
            raise TokenizerError("language: this tokenizer puts the code of no language around a text.")
        new = self.id(language)
        if new is None or new not in self.special_ids or new in roles:
            raise TokenizerError(f"language: {language!r} is not the code of one; it has {self.token(*now)!r} now.")
        prefix, suffix = (tuple(new if id in now else id for id in ids) for ids in (self.prefix, self.suffix))
        pair = self.pair and tuple((new if item in now else item, type) for item, type in self.pair)
        return replace(self, prefix=prefix, suffix=suffix, pair=pair, named={**self.named, "language": new})

    def token(self, id: int) -> str:
        """The vocabulary's own spelling of an id; raises TokenizerError where it is none."""
        token = self.segmenter.token(operator.index(id)) if 0 <= id < len(self) else None
        if token is None:
            raise TokenizerError(f"id {id} is not in this vocabulary, whose ids go from 0 to {len(self) - 1}.")
        return token

    def id(self, token: str) -> int | None:
        """The id that the vocabulary spells so, or None."""
        return self.segmenter.id(token)

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer to ``folder``: the files it came from byte for byte, or ones that say the same."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.write(folder)

    def __len__(self) -> int:
        return self.segmenter.size

    @property
    def bos(self) -> int | None:
        """The id that begins a text."""
        return self.named.get("bos")

    @property
    def eos(self) -> int | None:
        """The id that ends a text."""
        return self.named.get("eos")

    @property
    def pad(self) -> int | None:
        """The id that fills a batch."""
        return self.named.get("pad")

    @property
    def unk(self) -> int | None:
        """The id of what the vocabulary cannot say."""
        return self.named.get("unk")

    @cached_property
    def _spellings(self) -> dict[tuple[int, bool], bytes]:
        return {}

    def _spell(self, id: int, first: bool) -> bytes:
        known = self._spellings.get((id, first))
        if known is None:
            self.token(id)
            known = self._spellings[id, first] = self.segmenter.spell(id, first)
        return known


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"a text is a str, and this is {type(text).__name__}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"text: position {error.start} holds the lone surrogate U+{ord(text[error.start]):04X}, which is half a "
            "character; give its other half, or replace it."
        ) from None
