"""Byte-level BPE built from a vocabulary, its merges, and the name of the rule that cuts text before them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from plait.text.error import TokenizerError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, kw_only=True)
class PreTokenizer:
    """How text is cut before the merges: GPT-2's rule, or the regular expression that replaces it."""

    split: str | None = None
    single_digits: bool = False  # digits stand alone before GPT-2's rule
    nfc: bool = False  # text is composed first (Unicode normal form C)
    whole_words: bool = False  # a word the vocabulary has is not built from merges


GPT2 = PreTokenizer()
_DIGITS = PreTokenizer(single_digits=True)
_LLAMA3 = PreTokenizer(split=rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}", whole_words=True)
_QWEN2 = PreTokenizer(split=rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}", nfc=True)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_OPENING = r"[^\r\n\p{L}\p{N}]?"
O200K = PreTokenizer(
    split=rf"{_OPENING}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_OPENING}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    whole_words=True,
)

# By the names of tokenizer.ggml.pre (llama.cpp, llama-vocab.cpp).
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": GPT2,
    "gpt-2": GPT2,
    "olmo": GPT2,
    "phi-2": GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "command-r": _DIGITS,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}


def byte_level(
    vocab: Mapping[str, int],
    merges: Iterable[tuple[str, str]],
    pre: PreTokenizer = GPT2,
    *,
    added: Iterable[AddedToken] = (),
    add_prefix_space: bool = False,
) -> Library:
    """A byte-level BPE of the ``tokenizers`` library; raises TokenizerError where merges and vocabulary disagree."""
    try:
        model = models.BPE(vocab=dict(vocab), merges=list(merges), ignore_merges=pre.whole_words)
    except Exception as error:
        raise TokenizerError(f"byte-level BPE: the merges do not fit the vocabulary ({error}).") from None
    library = Library(model)
    if pre.nfc:
        library.normalizer = normalizers.NFC()
    cut = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=pre.split is None)
    if pre.split is not None:
        library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pre.split), "isolated"), cut])
    elif pre.single_digits:
        library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), cut])
    else:
        library.pre_tokenizer = cut
    library.decoder = decoders.ByteLevel()
    library.add_tokens(list(added))
    return library
