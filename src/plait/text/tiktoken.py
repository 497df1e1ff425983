"""Tiktoken's ranks: a vocabulary of bytes in the order in which they were merged, read as byte-level BPE.

A line is a token in base 64 and its rank. Ranks name no merges: any two neighbours that make a token may be merged.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from plait.text.byte_level import GPT2, O200K, PRE_TOKENIZERS, PreTokenizer, byte_level
from plait.text.error import TokenizerError
from plait.text.spelling import byte_alphabet

_LONGEST = 1000  # bytes of a token; the longest that models have are 128 spaces

LLAMA3, QWEN2 = PRE_TOKENIZERS["llama3"], PRE_TOKENIZERS["qwen2"]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """What stands beside the ranks in the program that reads them: how text is cut, and ids beyond the ranks."""

    pre: PreTokenizer
    specials: Mapping[str, int] = field(default_factory=dict[str, int])
    names: Mapping[str, str] = field(default_factory=dict[str, str])  # role -> token


def _numbered(start: int, *names: str) -> dict[str, int]:
    return {name: start + i for i, name in enumerate(names)}


_END = "<|endoftext|>"
_FILLS = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_LLAMA3_NAMES = ("<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{i}|>" for i in range(2)),
                 "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
                 "<|eot_id|>", "<|python_tag|>")  # fmt: skip

# By file name, and for Llama 3's tokenizer.model by how many ranks there are
ENCODINGS: dict[str, Encoding] = {
    "r50k_base": Encoding(pre=GPT2, specials={_END: 50256}, names={"eos": _END}),
    "p50k_base": Encoding(pre=GPT2, specials={_END: 50256}, names={"eos": _END}),
    "cl100k_base": Encoding(
        pre=LLAMA3,
        specials={_END: 100257, **_numbered(100258, *_FILLS), "<|endofprompt|>": 100276},
        names={"eos": _END},
    ),
    "o200k_base": Encoding(pre=O200K, specials={_END: 199999, "<|endofprompt|>": 200018}, names={"eos": _END}),
    "qwen": Encoding(
        pre=QWEN2,
        specials=_numbered(151643, _END, "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))),
        names={"eos": _END, "pad": _END},
    ),
    "llama3": Encoding(
        pre=LLAMA3,
        specials=_numbered(
            128000, *_LLAMA3_NAMES, *(f"<|reserved_special_token_{i}|>" for i in range(2, 256 - len(_LLAMA3_NAMES) + 2))
        ),
        names={"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>"},
    ),
}


def is_ranks(path: Path) -> bool:
    """Whether a file begins as ranks do."""
    with path.open("rb") as file:
        words = file.readline(4096).split()
    return len(words) == 2 and words[1].isdigit() and _decoded(words[0]) is not None


def encoding_of(path: Path, n_ranks: int) -> Encoding:
    """What goes with a file of ranks, by its name or, for a ``tokenizer.model``, by their number; TokenizerError."""
    name = "llama3" if path.name == "tokenizer.model" and n_ranks == 128000 else path.stem
    if name not in ENCODINGS:
        raise TokenizerError(
            f"{path}: ranks do not say how text is cut before the merges, and plait knows it for "
            f"{', '.join(ENCODINGS)}; name the file so, or give the folder a tokenizer.json."
        )
    return ENCODINGS[name]


def read_ranks(path: Path) -> tuple[dict[bytes, int], Encoding]:
    """Token to rank, and what goes with them.

    Raises TokenizerError at a line that is none or says again what another said, at a rank that no token of the
    encoding can have, and where a byte has no rank.
    """
    ranks: dict[bytes, int] = {}
    lines: dict[int, int] = {}  # of ranks
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        token, rank = _token_and_rank(line)
        if token is None or rank is None:
            raise TokenizerError(
                f"{path}: line {number} is not a token in base 64, of 1 to {_LONGEST} bytes, and its rank."
            )
        if token in ranks or rank in lines:
            again = lines[ranks[token] if token in ranks else rank]
            what = f"token {token[:40]!r}" if token in ranks else f"rank {rank}"
            raise TokenizerError(f"{path}: line {number} has the {what} of line {again} again; each stands once.")
        ranks[token], lines[rank] = rank, number
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise TokenizerError(f"{path}: the byte 0x{missing[0]:02X} has no rank, so not every text could be cut.")
    encoding = encoding_of(path, len(ranks))
    named = {id: name for name, id in encoding.specials.items()}
    for rank, number in lines.items():
        if rank in named:
            raise TokenizerError(f"{path}: line {number} has the rank {rank}, which is the id of {named[rank]!r}.")
        if rank >= len(ranks) + len(named):
            raise TokenizerError(
                f"{path}: line {number} has the rank {rank}, and {len(ranks)} tokens and {len(named)} special "
                "ones have none so high."
            )
    return ranks, encoding


def library_of(ranks: Mapping[bytes, int], encoding: Encoding) -> Library:
    """The ranks as a byte-level BPE of the ``tokenizers`` library, with the same ids."""
    spelled = {byte: character for character, byte in byte_alphabet().items()}

    def word(token: bytes) -> str:
        return "".join(spelled[byte] for byte in token)

    vocab = {word(token): rank for token, rank in ranks.items()}
    merges = [(word(left), word(right)) for left, right in _merges(ranks)]
    whole = PreTokenizer(**{**vars(encoding.pre), "whole_words": True})  # tiktoken looks a word up before it merges
    specials = sorted(encoding.specials, key=encoding.specials.__getitem__)
    library = byte_level({**vocab, **encoding.specials}, merges, whole)
    library.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in specials])
    return library


def _merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Every pair of tokens that makes another, in the order of what it makes: whichever stands in a text is merged."""
    for token in sorted(ranks, key=ranks.__getitem__):
        for i in range(1, len(token)):
            if token[:i] in ranks and token[i:] in ranks:
                yield token[:i], token[i:]


def _token_and_rank(line: bytes) -> tuple[bytes | None, int | None]:
    word, _, rank = line.partition(b" ")
    short = len(word) <= (_LONGEST + 2) // 3 * 4
    rank = rank.strip()
    token = _decoded(word) if short else None
    return token if token and len(token) <= _LONGEST else None, int(rank) if rank.isdigit() and len(rank) < 9 else None


def _decoded(word: bytes) -> bytes | None:
    try:
        return base64.b64decode(word, validate=True)
    except binascii.Error:
        return None
