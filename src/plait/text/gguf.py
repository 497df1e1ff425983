"""The tokenizer in a GGUF file's metadata: byte-level BPE ("gpt2"), sentencepiece ("llama"), WordPiece ("bert").

The ``tokenizer.*`` keys are those of the GGUF specification (ggml, docs/gguf.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Library

from plait.text.byte_level import PRE_TOKENIZERS, byte_level
from plait.text.chat_template import ChatTemplate
from plait.text.error import TokenizerError
from plait.text.library import LibrarySegmenter
from plait.text.pairs import Pair, bert_pair
from plait.text.pieces import PieceSegmenter
from plait.text.spelling import byte_of
from plait.text.tokenizer import Tokenizer
from plait.text.wire import PieceType, bpe_model
from plait.text.word_piece import CONTINUES, word_piece

NAMED = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "pad": "padding_token_id",
    "unk": "unknown_token_id",
    "cls": "cls_token_id",
    "sep": "seperator_token_id",  # spelled so in the specification
    "mask": "mask_token_id",
}


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes.

    Raises TokenizerError where there is none, or its kind (``tokenizer.ggml.model``) or the rule that cuts text before
    the merges (``tokenizer.ggml.pre``) is not one that plait has.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None or "tokenizer.ggml.tokens" not in metadata:
        raise TokenizerError("GGUF: the metadata holds no tokenizer (tokenizer.ggml.model and tokenizer.ggml.tokens).")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise TokenizerError(f"GGUF: tokenizer.ggml.model is {kind!r}, and plait reads {', '.join(map(repr, _KINDS))}.")
    return _KINDS[kind](_Metadata(metadata))


class _Metadata:
    """The tokenizer.* keys, with the defaults that the specification and old files imply."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.tokens: list[str] = self.listed("tokens", str, "strings")
        self.named: dict[str, int] = {role: id for role, key in NAMED.items() if (id := self.get(key)) is not None}
        for role, id in self.named.items():
            if not isinstance(id, int) or isinstance(id, bool):
                raise TokenizerError(f"GGUF: tokenizer.ggml.{NAMED[role]} is {id!r:.60}; it must be a whole number.")
            if not 0 <= id < len(self.tokens):
                raise TokenizerError(f"GGUF: the {role} id {id} is outside the vocabulary of {len(self.tokens)} ids.")
        typed = self.get("token_type") is not None
        self.types = self.listed("token_type", int, "whole numbers") if typed else self._guessed_types()
        unknown = next((type for type in self.types if not 0 <= type <= max(PieceType)), None)
        if unknown is not None:
            raise TokenizerError(f"GGUF: tokenizer.ggml.token_type has {unknown}; its types are 0 to {max(PieceType)}.")
        if len(self.types) != len(self.tokens):
            raise TokenizerError(f"GGUF: {len(self.types)} token types are given for {len(self.tokens)} tokens.")
        source, tool_use = (self._template(f"tokenizer.chat_template{end}") for end in ("", ".tool_use"))
        names = {f"{role}_token": self.tokens[id] for role, id in self.named.items()}
        self.chat_template = None if source is None else ChatTemplate(source=source, tool_use=tool_use, tokens=names)

    def get(self, key: str, default: Any = None) -> Any:
        return self._metadata.get(f"tokenizer.ggml.{key}", default)

    def listed(self, key: str, kind: type | tuple[type, ...], what: str) -> list[Any]:
        """A list of values of a kind, empty where there is none."""
        values = self.get(key, ())
        if not isinstance(values, (list, tuple)) or not all(
            isinstance(value, kind) and not isinstance(value, bool) for value in values
        ):
            raise TokenizerError(f"GGUF: tokenizer.ggml.{key} is {values!r:.60}; it must be a list of {what}.")
        return list(values)

    def switch(self, key: str, default: bool) -> bool:
        """A setting that is on or off."""
        value = self.get(key, default)
        if value not in (True, False):  # or 1 and 0
            raise TokenizerError(f"GGUF: tokenizer.ggml.{key} is {value!r:.60}; it must be true or false.")
        return bool(value)

    def _template(self, key: str) -> str | None:
        value = self._metadata.get(key)
        if value is not None and not isinstance(value, str):
            raise TokenizerError(f"GGUF: {key} is {value!r:.60}; it must be a string.")
        return value

    def control(self) -> list[str]:
        template = self.chat_template
        return [
            token
            for token, type in zip(self.tokens, self.types, strict=True)
            if type == PieceType.CONTROL
            or (type == PieceType.USER_DEFINED and template is not None and template.controls(token))
        ]

    def added(self) -> list[AddedToken]:
        """The tokens that are found in a text before it is cut."""
        return [
            AddedToken(token, special=type == PieceType.CONTROL, normalized=False)
            for token, type in zip(self.tokens, self.types, strict=True)
            if type in (PieceType.CONTROL, PieceType.USER_DEFINED) and token
        ]

    def around(self, bos: bool, eos: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids before and after a text; ``bos`` and ``eos`` are the defaults of files that do not say."""
        before = self.named.get("bos") if self.switch("add_bos_token", bos) else None
        after = self.named.get("eos") if self.switch("add_eos_token", eos) else None
        return (() if before is None else (before,)), (() if after is None else (after,))

    def config(self) -> dict[str, Any]:
        """What tokenizer_config.json says of it."""
        config: dict[str, Any] = {f"{role}_token": self.tokens[id] for role, id in self.named.items()}
        if self.chat_template is not None and self.chat_template.tool_use is not None:
            named = {"default": self.chat_template.source, "tool_use": self.chat_template.tool_use}
            config["chat_template"] = [{"name": name, "template": source} for name, source in named.items()]
        elif self.chat_template is not None:
            config["chat_template"] = self.chat_template.source
        return config | {"clean_up_tokenization_spaces": False}

    def special_ids(self) -> frozenset[int]:
        control = (id for id, type in enumerate(self.types) if type == PieceType.CONTROL)
        return frozenset([*control, *self.named.values()])

    def _guessed_types(self) -> list[int]:
        special = {id: PieceType.CONTROL for role, id in self.named.items() if role != "unk"}
        unknown = {self.named["unk"]: PieceType.UNKNOWN} if "unk" in self.named else {}
        bytes_ = {id: PieceType.BYTE for id, token in enumerate(self.tokens) if byte_of(token) is not None}
        known = bytes_ | special | unknown
        return [known.get(id, PieceType.NORMAL) for id in range(len(self.tokens))]


def _numbered(pieces: Iterable[str]) -> dict[str, int]:
    """Piece to id; only ids without a name may share one."""
    vocab: dict[str, int] = {}
    for id, piece in enumerate(pieces):
        first = vocab.setdefault(piece, id)
        if piece and first != id:
            raise TokenizerError(
                f"GGUF: the ids {first} and {id} are both the token {piece!r:.60} in tokenizer.ggml.tokens; each needs "
                "its own."
            )
    return vocab


def _byte_level(metadata: _Metadata) -> Tokenizer:
    name = metadata.get("pre", "default")
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        raise TokenizerError(
            f"GGUF: tokenizer.ggml.pre is {name!r}, a way to cut text that plait does not have; it has "
            f"{', '.join(PRE_TOKENIZERS)}."
        )
    vocab = _numbered(metadata.tokens)
    pairs: list[str] = metadata.listed("merges", str, "strings")
    merges = [(left, right) for left, _, right in (pair.partition(" ") for pair in pairs)]
    pre = PRE_TOKENIZERS[name]
    space = metadata.switch("add_space_prefix", False)
    library = byte_level(vocab, merges, pre, added=metadata.added(), add_prefix_space=space)
    return _over_library(metadata, library, *metadata.around(bos=pre.whole_words, eos=False))


def _word_piece(metadata: _Metadata) -> Tokenizer:
    named = metadata.named
    if "bos" in named:  # llama.cpp's word for [CLS]
        named = {"cls": named["bos"], **named}
    metadata.named = named = {role: id for role, id in named.items() if role not in ("bos", "eos")}
    lacking = [role for role in ("cls", "sep", "unk") if role not in named]
    if lacking:
        raise TokenizerError(f"GGUF: a 'bert' tokenizer needs tokenizer.ggml.{NAMED[lacking[0]]}.")
    vocab = _numbered(map(word_piece_of, metadata.tokens))
    accents = metadata.get("normalizer.strip_accents") is not None
    library = word_piece(
        vocab,
        unknown=metadata.tokens[named["unk"]],
        lowercase=metadata.switch("normalizer.lowercase", True),
        strip_accents=metadata.switch("normalizer.strip_accents", True) if accents else None,
    )
    library.add_tokens(metadata.added())
    around = named["cls"], named["sep"]
    return _over_library(metadata, library, around[:1], around[1:], bert_pair(*around))


def word_piece_of(token: str) -> str:
    """GGUF marks the pieces that begin a word, by ▁, where WordPiece marks those that go on with one."""
    if token.startswith("[") and token.endswith("]"):
        return token
    return token.removeprefix("▁") if token.startswith("▁") else CONTINUES + token


def _over_library(
    metadata: _Metadata, library: Library, prefix: tuple[int, ...], suffix: tuple[int, ...], pair: Pair | None = None
) -> Tokenizer:
    def write(folder: Path) -> None:
        if prefix or suffix:
            names = {str(metadata.tokens[id]): id for id in (*prefix, *suffix)}
            single = [*(metadata.tokens[id] for id in prefix), "$A", *(metadata.tokens[id] for id in suffix)]
            both = [
                f"{f'${item}' if isinstance(item, str) else metadata.tokens[item]}:{type}" for item, type in pair or ()
            ]
            library.post_processor = processors.TemplateProcessing(
                single=single, pair=both or None, special_tokens=list(names.items())
            )
        library.save(str(folder / "tokenizer.json"))
        _write_config(folder, metadata.config() | {"tokenizer_class": "PreTrainedTokenizerFast"})

    return Tokenizer(
        segmenter=LibrarySegmenter(library, metadata.control()),
        write=write,
        prefix=prefix,
        suffix=suffix,
        named=metadata.named,
        special_ids=metadata.special_ids(),
        chat_template=metadata.chat_template,
        pair=pair,
    )


def _sentencepiece(metadata: _Metadata) -> Tokenizer:
    scores: list[float] = metadata.listed("scores", (int, float), "numbers")
    if len(scores) != len(metadata.tokens):
        raise TokenizerError("GGUF: a 'llama' tokenizer needs tokenizer.ggml.scores, one score for each token.")
    # Runs of spaces are stored as spaces in some files; sentencepiece writes a space as ▁.
    pieces = [token.replace(" ", "▁") for token in metadata.tokens]
    _numbered(pieces)
    space = metadata.switch("add_space_prefix", True)
    model = bpe_model(pieces, map(float, scores), metadata.types, add_dummy_prefix=space)
    prefix, suffix = metadata.around(bos=True, eos=False)

    def write(folder: Path) -> None:
        (folder / "tokenizer.model").write_bytes(model)
        flags = {"add_bos_token": bool(prefix), "add_eos_token": bool(suffix), "legacy": False}
        flags |= {"add_prefix_space": space, "tokenizer_class": "LlamaTokenizer" if space else "GemmaTokenizer"}
        _write_config(folder, metadata.config() | flags)

    return Tokenizer(
        segmenter=PieceSegmenter(model, control=metadata.control()),
        write=write,
        prefix=prefix,
        suffix=suffix,
        named=metadata.named,
        special_ids=metadata.special_ids(),
        chat_template=metadata.chat_template,
    )


def _write_config(folder: Path, config: Mapping[str, Any]) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")


_KINDS = {"gpt2": _byte_level, "llama": _sentencepiece, "bert": _word_piece}
