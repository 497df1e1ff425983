"""A tokenizer as the metadata of a GGUF file: what ``tokenizer_from_gguf`` reads, and llama.cpp with it.

llama.cpp cuts text by a rule of its own for each kind of vocabulary, and by a name for byte-level BPE. A tokenizer that
cuts otherwise is refused: a file that silently gives other ids is worse than none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer as Library

from plait.text.byte_level import PRE_TOKENIZERS, byte_level
from plait.text.error import TokenizerError
from plait.text.gguf import NAMED, word_piece_of
from plait.text.library import LibrarySegmenter
from plait.text.pieces import PieceSegmenter
from plait.text.spelling import byte_of
from plait.text.tokenizer import Tokenizer
from plait.text.wire import PieceType, is_bpe, pieces_of_type
from plait.text.word_piece import CONTINUES, LONGEST_WORD

_SPACE = "▁"
_NO_SCORE = -1000.0  # of a piece that no merge makes


@dataclass(frozen=True)
class _Token:
    text: str
    type: int = PieceType.NORMAL
    score: float = _NO_SCORE


@dataclass(frozen=True)
class _Vocabulary:
    """Tokens by id, and the keys of a kind's own (``"model"``, ``"pre"``, ...)."""

    tokens: Mapping[int, _Token]
    keys: Mapping[str, Any]
    scored: bool = False


def tokenizer_to_gguf(tokenizer: Tokenizer, vocab_size: int) -> dict[str, Any]:
    """The ``tokenizer.*`` metadata of a tokenizer for a model of ``vocab_size`` ids; ids that it lacks are unused ones.

    Raises TokenizerError where llama.cpp would cut text otherwise, or puts something else around it.
    """
    vocabulary = _vocabulary(tokenizer)
    if len(tokenizer) > vocab_size:
        raise TokenizerError(
            f"GGUF: the tokenizer has {len(tokenizer)} ids and the model {vocab_size}; a file has one for each."
        )
    taken = {token.text for token in vocabulary.tokens.values()}
    tokens = [vocabulary.tokens.get(id) or _Token(_filler(id, taken), PieceType.UNUSED) for id in range(vocab_size)]
    keys: dict[str, Any] = {**vocabulary.keys, "tokens": [token.text for token in tokens]}
    if vocabulary.scored:
        keys["scores"] = [token.score for token in tokens]
    keys["token_type"] = [int(token.type) for token in tokens]
    keys |= {NAMED[role]: id for role, id in tokenizer.named.items()}
    keys |= _around(tokenizer)
    template = tokenizer.chat_template
    written = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    if template is not None:
        written["tokenizer.chat_template"] = template.source
        if template.tool_use is not None:
            written["tokenizer.chat_template.tool_use"] = template.tool_use
    return written


def _filler(id: int, taken: Container[str]) -> str:
    """The name of an id without a token: one that no token has."""
    name = f"[PAD{id}"
    while f"{name}]" in taken:
        name += "_"
    return f"{name}]"


def greedy_tokens(tokenizer: Tokenizer) -> list[str]:
    """The added tokens that take spaces beside them along, or are whole words alone: GGUF has no word for it."""
    if not isinstance(tokenizer.segmenter, LibrarySegmenter):
        return []
    added = tokenizer.segmenter.library.get_added_tokens_decoder().values()
    return [token.content for token in added if token.lstrip or token.rstrip or token.single_word]


def leads_otherwise(tokenizer: Tokenizer) -> bool:
    """Whether llama.cpp cuts texts that begin with a space otherwise: it puts one before them too (Mistral)."""
    if not isinstance(tokenizer.segmenter, LibrarySegmenter):
        return False
    state = json.loads(tokenizer.segmenter.library.to_str())
    return bool(_schemes(_steps(state["pre_tokenizer"], "pretokenizers")))


def _around(tokenizer: Tokenizer) -> dict[str, Any]:
    """What goes before and after a text, as switches."""
    named, sides = tokenizer.named, (tokenizer.prefix, tokenizer.suffix)
    if "cls" in named and sides == ((named["cls"],), (named.get("sep"),)):
        return {"bos_token_id": named["cls"], "eos_token_id": named["sep"]}  # llama.cpp's words for them
    switches = {}
    for role, side, ids in (("bos", "before", sides[0]), ("eos", "after", sides[1])):
        if ids and ids != (named.get(role),):
            raise TokenizerError(f"GGUF: {ids} go {side} a text, and llama.cpp can put the {role} token there alone.")
        switches[f"add_{role}_token"] = bool(ids)
    return switches


def _vocabulary(tokenizer: Tokenizer) -> _Vocabulary:
    segmenter = tokenizer.segmenter
    if isinstance(segmenter, PieceSegmenter):
        return _pieces(segmenter)
    if not isinstance(segmenter, LibrarySegmenter):
        raise TokenizerError(f"GGUF: llama.cpp has no tokenizer of the kind {type(segmenter).__name__}.")
    state = json.loads(segmenter.library.to_str())
    kind = state["model"]["type"]
    cuts = _steps(state["pre_tokenizer"], "pretokenizers")
    _refuse_normalized(state)
    if kind == "WordPiece":
        return _word_piece(segmenter, state)
    if kind == "BPE" and any(step["type"] == "ByteLevel" for step in cuts):
        return _byte_level(segmenter, state)
    if kind == "BPE":
        return _scored_merges(segmenter, state, cuts)
    raise TokenizerError(f"tokenizer.json: llama.cpp as plait writes for it has no model of the type {kind!r}.")


def _added(state: Mapping[str, Any], control: Mapping[str, int]) -> dict[int, _Token]:
    """The tokens that are found in a text before it is cut."""
    return {
        token["id"]: _Token(
            token["content"], PieceType.CONTROL if token["content"] in control else PieceType.USER_DEFINED
        )
        for token in state["added_tokens"]
    }


def _refuse_normalized(state: Mapping[str, Any]) -> None:
    """llama.cpp finds every added token in the text as it is written."""
    normalized = [token["content"] for token in state["added_tokens"] if token["normalized"]]
    if normalized and state["normalizer"] is not None:
        raise TokenizerError(
            f"tokenizer.json: the added token {normalized[0]!r} is looked for in normalized text (normalized), and "
            "llama.cpp looks for it before; it must be false."
        )


def _refuse_affixes(model: Mapping[str, Any]) -> None:
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise TokenizerError(f"tokenizer.json: model.{key} is {model[key]!r}, and llama.cpp's BPE knows none.")


def _steps(component: Mapping[str, Any] | None, parts: str) -> list[Mapping[str, Any]]:
    """The steps of a component, one after the other."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [step for part in component[parts] for step in _steps(part, parts)]


def _byte_level(segmenter: LibrarySegmenter, state: Mapping[str, Any]) -> _Vocabulary:
    model, cut = state["model"], _cut(segmenter.library)
    _refuse_affixes(model)
    name = next((name for name, known in _known_cuts() if known == cut), None)
    if name is None:
        raise TokenizerError(
            "tokenizer.json: its rule for cutting text before the merges has no name in llama.cpp that plait knows; "
            f"it knows {', '.join(PRE_TOKENIZERS)}."
        )
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    tokens = {id: _Token(text) for text, id in model["vocab"].items()} | _added(state, segmenter.control)
    return _Vocabulary(tokens, {"model": "gpt2", "pre": name, "merges": merges})


def _cut(library: Library) -> list[Any]:
    """All that decides how text is cut, in a form that can be compared."""
    state = json.loads(library.to_str())
    model = state["model"]
    steps = [*_steps(state["normalizer"], "normalizers"), *_steps(state["pre_tokenizer"], "pretokenizers")]
    plain = [{key: value for key, value in step.items() if key != "trim_offsets"} for step in steps]
    return [plain, *(bool(model[key]) for key in ("ignore_merges", "byte_fallback", "dropout"))]


def _known_cuts() -> Iterator[tuple[str, list[Any]]]:
    for name, pre in PRE_TOKENIZERS.items():
        if name != "default":  # what files without a name are taken to mean
            yield name, _cut(byte_level({}, [], pre))


def _word_piece(segmenter: LibrarySegmenter, state: Mapping[str, Any]) -> _Vocabulary:
    model, rules = state["model"], _steps(state["normalizer"], "normalizers")
    cuts = [step["type"] for step in _steps(state["pre_tokenizer"], "pretokenizers")]
    if [rule["type"] for rule in rules] != ["BertNormalizer"] or cuts != ["BertPreTokenizer"]:
        raise TokenizerError("tokenizer.json: llama.cpp cuts text for a WordPiece as BERT does; this one does not.")
    if not rules[0]["handle_chinese_chars"] or model["continuing_subword_prefix"] != CONTINUES:
        raise TokenizerError(
            "tokenizer.json: llama.cpp sets Chinese characters apart and knows ## alone in a WordPiece."
        )
    if not rules[0]["clean_text"] or model["max_input_chars_per_word"] != LONGEST_WORD:
        raise TokenizerError(
            f"tokenizer.json: clean_text is {rules[0]['clean_text']} and max_input_chars_per_word "
            f"{model['max_input_chars_per_word']}; GGUF cannot say so, and is read with True and {LONGEST_WORD}."
        )
    unclear = next((piece for piece in model["vocab"] if not piece or word_piece_of(_marked(piece)) != piece), None)
    if unclear is not None:
        raise TokenizerError(
            f"tokenizer.json: the piece {unclear!r} cannot be told in GGUF, where {_SPACE} begins a word, from another."
        )
    switches = {f"normalizer.{key}": rules[0][key] for key in ("lowercase", "strip_accents")}
    tokens = {id: _Token(_marked(text)) for text, id in model["vocab"].items()} | _added(state, segmenter.control)
    said = {key: value for key, value in switches.items() if value is not None}
    return _Vocabulary(tokens, {"model": "bert", "pre": "default", **said})


def _marked(piece: str) -> str:
    """The inverse of ``word_piece_of``."""
    if piece.startswith("[") and piece.endswith("]"):
        return piece
    return piece.removeprefix(CONTINUES) if piece.startswith(CONTINUES) else _SPACE + piece


def _pieces(segmenter: PieceSegmenter) -> _Vocabulary:
    if not is_bpe(segmenter.model):
        raise TokenizerError(
            "GGUF: of sentencepiece models plait writes those that merge (BPE); this one is a unigram."
        )
    _refuse_without_bytes(pieces_of_type(segmenter.model, PieceType.BYTE), "GGUF: the sentencepiece model")
    processor = SentencePieceProcessor(model_proto=segmenter.model)
    if not processor.Normalize("ａ  b ").endswith(f"ａ{_SPACE * 2}b{_SPACE}"):
        raise TokenizerError("GGUF: this sentencepiece model changes text before it cuts it; llama.cpp does not.")
    ids = list(range(processor.GetPieceSize()))
    pieces: Sequence[str] = processor.IdToPiece(ids)
    types = {
        piece: type for type in PieceType if type != PieceType.NORMAL for piece in pieces_of_type(segmenter.model, type)
    }
    scores: Sequence[float] = processor.GetScore(ids)
    tokens = {
        id: _Token(piece, types.get(piece, PieceType.NORMAL), score)
        for id, piece, score in zip(ids, pieces, scores, strict=True)
    }
    more = {id: _Token(text, PieceType.CONTROL) for text, id in segmenter.control.items() if id not in tokens}
    space = processor.Normalize("a").startswith(_SPACE)
    keys = {"model": "llama", "pre": "default", "add_space_prefix": space}
    return _Vocabulary(tokens | more, keys, scored=True)


def _refuse_without_bytes(pieces: Iterable[str], where: str) -> None:
    """llama.cpp spells by bytes what is no token, and has no other way."""
    lacking = set(range(256)) - {byte_of(piece) for piece in pieces}
    if lacking:
        raise TokenizerError(
            f"{where} has no token <0x{min(lacking):02X}>, and llama.cpp spells by bytes what is no token; all 256 are "
            "needed."
        )


def _scored_merges(
    segmenter: LibrarySegmenter, state: Mapping[str, Any], cuts: Sequence[Mapping[str, Any]]
) -> _Vocabulary:
    """A BPE over ▁ whose merges are those of a sentencepiece model: their order is the order of its scores."""
    model = state["model"]
    space = _puts_space_before(_steps(state["normalizer"], "normalizers"), cuts)
    _refuse_affixes(model)
    for key, needed in (("byte_fallback", True), ("ignore_merges", False), ("dropout", None)):
        if bool(model[key]) != bool(needed):
            raise TokenizerError(
                f"tokenizer.json: model.{key} is {model[key]!r}, and llama.cpp cuts as with {needed} over {_SPACE}."
            )
    _refuse_without_bytes(model["vocab"], "tokenizer.json: the vocabulary")
    spaced = next(
        (piece for piece in model["vocab"] if " " in piece and piece.replace(" ", _SPACE) in model["vocab"]), None
    )
    if spaced is not None:
        raise TokenizerError(
            f"tokenizer.json: the token {spaced!r} is another's with {_SPACE} for a space; GGUF has one."
        )
    added = _added(state, segmenter.control)
    apart = {token.text for token in added.values()}
    merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
    made = [piece for piece, _ in groupby(left + right for left, right in merges)]
    scores = {piece: -1.0 - rank for rank, piece in enumerate(made)}
    vocab: Mapping[str, int] = model["vocab"]
    found = set(merges)
    whole = all(
        (piece[:i], piece[i:]) in found
        for piece in vocab
        if piece not in apart and byte_of(piece) is None
        for i in range(1, len(piece))
        if piece[:i] in vocab and piece[i:] in vocab and not {piece[:i], piece[i:]} & apart
    )
    if len(scores) != len(made) or not whole:
        raise TokenizerError(
            "tokenizer.json: its merges are not those of a sentencepiece model, and llama.cpp merges whatever two "
            "neighbours make a token; text would be cut otherwise."
        )
    unknown = model.get("unk_token")

    def typed(piece: str) -> int:
        if piece == unknown:
            return PieceType.UNKNOWN
        return PieceType.NORMAL if byte_of(piece) is None else PieceType.BYTE

    tokens = {id: _Token(piece, typed(piece), scores.get(piece, _NO_SCORE)) for piece, id in vocab.items()}
    tokens |= {id: token for id, token in added.items() if token.text != unknown}
    keys = {"model": "llama", "pre": "default", "add_space_prefix": space}
    return _Vocabulary(tokens, keys, scored=True)


_IS_SPACE: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "Prepend": lambda step: step["prepend"] == _SPACE,
    "Replace": lambda step: step["pattern"] == {"String": " "} and step["content"] == _SPACE,
    "Metaspace": lambda step: step["replacement"] == _SPACE and not step.get("split", True),
    "Split": lambda step: step["pattern"] == {"String": " "},
}


def _puts_space_before(rules: Sequence[Mapping[str, Any]], cuts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether text gets a space before it; TokenizerError where something else is done to it than writing ▁."""
    for step in (*rules, *cuts):
        if step["type"] not in _IS_SPACE or not _IS_SPACE[step["type"]](step):
            raise TokenizerError(
                f"tokenizer.json: its step {step['type']} is none that llama.cpp takes for a vocabulary over {_SPACE}."
            )
    kinds = [step["type"] for step in (*rules, *cuts)]
    writes = next((i for i, kind in enumerate(kinds) if kind in ("Replace", "Metaspace")), len(kinds))
    if writes == len(kinds) or "Split" in kinds[:writes]:  # a Split behind it finds no space
        raise TokenizerError(
            f"tokenizer.json: none of its steps writes {_SPACE} for every space before text is cut (Replace or "
            "Metaspace), as llama.cpp does for a vocabulary that is not byte-level."
        )
    prepends = kinds.count("Prepend") + len(_schemes(cuts))
    if prepends > 1:
        raise TokenizerError(
            f"tokenizer.json: {_SPACE} goes before a text more than once, and llama.cpp puts one before every text."
        )
    return prepends == 1


def _schemes(cuts: Sequence[Mapping[str, Any]]) -> list[str]:
    """How Metaspace steps put a space before a text: where none is."""
    schemes = [step["prepend_scheme"] for step in cuts if step["type"] == "Metaspace"]
    return [scheme for scheme in schemes if scheme != "never"]
