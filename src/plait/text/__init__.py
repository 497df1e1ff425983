"""Text in, ids out, and back: tokenizers, chat templates, and text that streams without broken characters.

A :class:`Tokenizer` is one record whatever wrote the vocabulary (``tokenizers``, ``sentencepiece``, GGUF metadata).
"""

from plait.text.chat_template import ChatTemplate, Limits
from plait.text.cost import Cost, cost
from plait.text.detokenizer import Detokenizer
from plait.text.error import TokenizerError
from plait.text.folder import load_tokenizer, vocabularies, with_target
from plait.text.gguf import tokenizer_from_gguf
from plait.text.to_gguf import tokenizer_to_gguf
from plait.text.tokenizer import Segmenter, Tokenizer
from plait.text.training import KINDS, lines, train_tokenizer

__all__ = [
    "KINDS",
    "ChatTemplate",
    "Cost",
    "Detokenizer",
    "Limits",
    "Segmenter",
    "Tokenizer",
    "TokenizerError",
    "cost",
    "lines",
    "load_tokenizer",
    "tokenizer_from_gguf",
    "train_tokenizer",
    "tokenizer_to_gguf",
    "vocabularies",
    "with_target",
]
