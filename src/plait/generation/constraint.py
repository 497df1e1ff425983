"""Constraint: a regular expression or JSON schema that a whole text matches, held token by token.

The grammar is llguidance's: before every token it says which ones keep the text on a way to an end. Text may end where
the grammar allows it, and then only by an end id.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from plait.generation.errors import GenerationError

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint
    from plait.text import Tokenizer


class Constraint:
    """What a text must be, over the tokens of one tokenizer; ``begin`` follows one text. Make it with ``constrain``."""

    def __init__(self, tokenizer: Tokenizer, name: str, grammar: str) -> None:
        library = _library()
        self._n_tokens = len(tokenizer)
        self._start = library.LLMatcher(_tokens(tokenizer, library), grammar, log_level=0)
        if self._start.is_error():
            raise GenerationError(f"{name}: {_sentence(self._start.get_error())}")
        first = self._start.deep_copy()
        first.compute_bitmask()
        if first.is_error():  # one that is too large, or that nothing matches, is found out when it is followed
            raise GenerationError(
                f"{name}: no text can be begun by it ({_sentence(first.get_error())[:-1]}); give one that some text "
                "matches, and a smaller one where it is large."
            )

    def begin(self, tokens: Sequence[int] = ()) -> Matcher:
        """A text of which ``tokens`` are written."""
        matcher = Matcher(self._start.deep_copy(), self._n_tokens)
        for token in tokens:
            matcher.take(token)
        return matcher


class Matcher:
    """Where one text stands in its grammar."""

    def __init__(self, inner: Any, n_tokens: int) -> None:
        self._inner, self._n_tokens = inner, n_tokens

    def allowed(self, vocab_size: int, ends: Collection[int]) -> Tensor:
        """``(vocab,)`` boolean: which tokens may follow; the ``ends`` where the text may be over."""
        bits = np.unpackbits(np.frombuffer(self._inner.compute_bitmask(), np.uint8), bitorder="little").astype(bool)
        known = min(vocab_size, self._n_tokens)
        allowed = torch.zeros(vocab_size, dtype=torch.bool)
        allowed[:known] = torch.from_numpy(bits[:known])
        allowed[list(ends)] = self._inner.is_accepting()
        if self._inner.is_error():
            raise GenerationError(f"constraint: {_sentence(self._inner.get_error())}")
        return allowed

    def take(self, token: int) -> None:
        """One more token was written; one that the grammar does not allow, a forced one, is no part of the text."""
        self._inner.try_consume_tokens([token])

    def fork(self) -> Matcher:
        """One that stands at the same place and goes its own way."""
        return Matcher(self._inner.deep_copy(), self._n_tokens)


def constrain(
    checkpoint: Checkpoint, regex: str | None = None, json_schema: str | Mapping[str, Any] | None = None
) -> Constraint | None:
    """What text written with ``checkpoint`` must be; ``None`` where neither is given.

    ``regex``: in the syntax of Rust's regular expressions, anchored at both ends. ``json_schema``: JSON, or what that
    reads as. ``GenerationError`` where one makes no sense, or llguidance is not installed.
    """
    if regex is None and json_schema is None:
        return None
    if regex is not None and json_schema is not None:
        raise GenerationError("regex, json_schema: both are given; give one of the two.")
    if regex is not None and not isinstance(regex, str):
        raise GenerationError(f"regex: {regex!r} is no text; give a regular expression as a str.")
    schema = "" if json_schema is None else _schema(json_schema)
    for name, text in (("regex", regex or ""), ("json_schema", schema)):
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise GenerationError(
                f"{name}: it holds half of a surrogate pair, which no text does; give whole characters."
            )
    tokenizer = checkpoint.tokenizer
    if tokenizer is None:
        raise GenerationError(
            "regex, json_schema: the checkpoint has no tokenizer, and so no text; ban token ids instead."
        )
    tokenizer = tokenizer if tokenizer.target is None else tokenizer.target
    # A text that nothing stands before drops the space its first word is marked with
    opens = checkpoint.architecture.kind == "encoder-decoder" and _drops_space(tokenizer)
    if regex is not None:
        pattern = f"( )?({regex})" if opens else regex
        return Constraint(tokenizer, "regex", _library().LLMatcher.grammar_from_regex(pattern))
    grammar = f"start: {'/ ?/ ' if opens else ''}%json {schema}"
    return Constraint(tokenizer, "json_schema", _library().LLMatcher.grammar_from_lark(grammar))


def _schema(given: Any) -> str:
    """As JSON, in one line."""
    if not isinstance(given, str | Mapping):
        raise GenerationError(f"json_schema: {given!r} is no schema; give JSON as a str, or a mapping.")
    try:
        schema: Any = json.loads(given) if isinstance(given, str) else given
        if isinstance(schema, Mapping | bool):
            return json.dumps(
                dict(schema) if isinstance(schema, Mapping) else schema, ensure_ascii=False, allow_nan=False
            )
    except (ValueError, TypeError, RecursionError) as mistake:
        raise GenerationError(f"json_schema: it is not JSON ({mistake}).") from None
    raise GenerationError(f"json_schema: {given} is no schema; a schema is an object, true or false.")


def _library() -> Any:
    try:
        return importlib.import_module("llguidance")
    except ImportError:
        raise GenerationError(
            "regex, json_schema: they need llguidance; install it with pip install 'plait[constrained]'."
        ) from None


_KNOWN: WeakKeyDictionary[Tokenizer, Any] = WeakKeyDictionary()


def _tokens(tokenizer: Tokenizer, library: Any) -> Any:
    """llguidance's table of a vocabulary, made once."""
    if tokenizer not in _KNOWN:
        wrapper = library.TokenizerWrapper(_Vocabulary(tokenizer))
        _KNOWN[tokenizer] = library.LLTokenizer(wrapper, n_vocab=len(wrapper.tokens))
    return _KNOWN[tokenizer]


class _Vocabulary:
    """A tokenizer as llguidance asks about it: the bytes of every id, and one more id, which ends the text.

    Which of the model's own ids end it is for whoever decodes to say.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        spell, ids = tokenizer.segmenter.spell, range(len(tokenizer))
        self.tokens = [b"" if tokenizer.segmenter.token(id) is None else spell(id, False) for id in ids] + [b""]
        self.eos_token_id, self.bos_token_id = len(ids), None
        special = {id for id in range(len(self.tokens)) if id in tokenizer.special_ids or not self.tokens[id]}
        self.special_token_ids = sorted(special)
        self._tokenizer = tokenizer
        self._ids = {self.tokens[id]: id for id in reversed(ids) if id not in special}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: bytes) -> list[int]:
        """How text that is forced is cut: as the tokenizer would, unless that puts a space before it."""
        ids = self._tokenizer.encode(text.decode("utf-8", "replace"), specials=False, control=False)
        return ids if b"".join(self.tokens[id] for id in ids) == text else self._greedy(text)

    def _greedy(self, text: bytes) -> list[int]:
        """The longest token at each place; none where no token fits."""
        ids: list[int] = []
        while text:
            fits = (n for n in range(self._longest, 0, -1) if text[:n] in self._ids)
            n = next(fits, 0)
            if n == 0:
                break
            ids.append(self._ids[text[:n]])
            text = text[n:]
        return ids


def _drops_space(tokenizer: Tokenizer) -> bool:
    known = (id for id in range(len(tokenizer)) if tokenizer.segmenter.token(id) is not None)
    return any(tokenizer.segmenter.spell(id, True) != tokenizer.segmenter.spell(id, False) for id in known)


def _sentence(error: str) -> str:
    """What llguidance says over several lines, in one, without the state of its parser."""
    return " ".join(error.partition("<state>")[0].split())[:300].rstrip(".") + "."
