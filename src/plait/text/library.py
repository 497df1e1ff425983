"""A vocabulary cut by the ``tokenizers`` library: byte-level BPE, WordPiece, unigram, all that tokenizer.json says."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from plait.text.control import split_control
from plait.text.error import TokenizerError
from plait.text.spelling import separates, spelling


class LibrarySegmenter:
    """The ``tokenizers`` library as a :class:`~plait.text.tokenizer.Segmenter`.

    ``control``: added tokens that count as control beyond those marked special. Truncation and padding that the file
    carries are switched off: they belong to whoever makes a batch.
    """

    def __init__(self, library: Library, control: Collection[str] = ()) -> None:
        library.no_truncation()
        library.no_padding()
        added: Mapping[int, AddedToken] = library.get_added_tokens_decoder()
        decoder = _state(library.decoder)
        self.library = library
        self.size = max([library.get_vocab_size(with_added_tokens=True), *(id + 1 for id in added)])
        self.special_ids = frozenset(id for id, token in added.items() if token.special)
        self.control = {token.content: id for id, token in added.items() if token.special or token.content in control}
        self._names = {id: string for string, id in self.control.items()}
        # An added token is spelled in its own characters, unless the vocabulary has it too, in the vocabulary's.
        self._literal: dict[int, bytes] = {
            id: token.content.encode()
            for id, token in added.items()
            if not separates(decoder) and (token.special or library.model.id_to_token(id) is None)
        }
        self._spelling = spelling(decoder)

    @property
    def merged(self) -> Mapping[int, tuple[int, int]]:
        """Of ids that BPE merged, the two they were merged from, by the merge that comes first."""
        model = json.loads(self.library.to_str())["model"]
        found: dict[int, tuple[int, int]] = {}
        for pair in model.get("merges", ()):
            first, second = pair.split(" ") if isinstance(pair, str) else pair
            ids = [model["vocab"].get(token) for token in (first + second, first, second)]
            if None not in ids:
                found.setdefault(ids[0], (ids[1], ids[2]))
        return found

    def segment(self, text: str) -> list[int]:
        """The ids of a text; control strings become their ids."""
        return self.library.encode(text, add_special_tokens=False).ids

    def segment_parts(self, parts: Sequence[str | int]) -> list[int]:
        """The ids of plain text, where no string is control, and of control ids between."""
        text = self._written(parts, self._names)
        if split_control(text, self.control) == list(parts):
            return self.segment(text)
        twin, aliases = self._twin
        return twin.encode(self._written(parts, aliases), add_special_tokens=False).ids

    def segment_batch(self, texts: Sequence[str], control: bool) -> list[list[int]]:
        """The ids of each text, by the library's own threads, which hold up no other."""
        plain = control or not any(len(split_control(text, self.control)) > 1 for text in texts)
        library = self.library if plain else self._twin[0]
        return [found.ids for found in library.encode_batch_fast(list(texts), add_special_tokens=False)]

    @staticmethod
    def _written(parts: Sequence[str | int], names: Mapping[int, str]) -> str:
        return "".join(names[part] if isinstance(part, int) else part for part in parts)

    def token(self, id: int) -> str | None:
        """The vocabulary's own spelling of an id."""
        return self.library.id_to_token(id)

    def id(self, token: str) -> int | None:
        """The id spelled so in the vocabulary."""
        return self.library.token_to_id(token)

    def spell(self, id: int, first: bool) -> bytes:
        """The bytes that an id adds to a text."""
        literal = self._literal.get(id)
        return self._spelling(self.library.id_to_token(id) or "", first) if literal is None else literal

    @cached_property
    def _twin(self) -> tuple[Library, dict[int, str]]:
        """The same vocabulary with its control tokens respelled, and the new spellings by id.

        The respellings are drawn at random, so no text contains one but what is built here from control ids, and the
        library still cuts the text in one piece: its rules for the text's start and for spaces around tokens hold.
        """
        nonce = secrets.token_hex(8)
        aliases = {string: f"\ue000{nonce}.{id}\ue001" for string, id in self.control.items()}
        state = json.loads(self.library.to_str())
        for token in state["added_tokens"]:
            if token["content"] in aliases:
                token |= {"content": aliases[token["content"]], "normalized": False, "single_word": False}
        state["post_processor"] = None
        model = state["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {aliases.get(token, token): id for token, id in model["vocab"].items()}
        else:
            model["vocab"] = [[aliases.get(token, token), score] for token, score in model["vocab"]]
        if model.get("unk_token") in aliases:
            model["unk_token"] = aliases[model["unk_token"]]
        if "merges" in model:
            model["merges"] = [
                pair for pair in model["merges"] if not aliases.keys() & {pair[0], pair[1], pair[0] + pair[1]}
            ]
        twin = Library.from_str(json.dumps(state))
        return twin, {id: aliases[string] for string, id in self.control.items()}


def specials_of(library: Library) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the library's post-processor puts before and after a text."""
    return _around(_state(library.post_processor))


def _around(processor: Mapping[str, Any] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    kind = None if processor is None else processor["type"]
    if processor is None or kind == "ByteLevel":
        return (), ()
    if kind in ("BertProcessing", "RobertaProcessing"):
        return (processor["cls"][1],), (processor["sep"][1],)
    if kind == "Sequence":
        befores, afters = zip(*map(_around, processor["processors"]), strict=True)
        return sum(reversed(befores), ()), sum(afters, ())
    if kind != "TemplateProcessing":
        raise TokenizerError(f"tokenizer.json: a post-processor of type {kind!r} is not one that plait reads.")
    before: list[int] = []
    after: list[int] = []
    side = before
    for item in processor["single"]:
        if "Sequence" in item:
            side = after
        else:
            side += processor["special_tokens"][item["SpecialToken"]["id"]]["ids"]
    return tuple(before), tuple(after)


def _state(component: Any) -> dict[str, Any] | None:
    return None if component is None else json.loads(component.__getstate__())
