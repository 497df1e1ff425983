"""Text in, ids out, and back: tokenizers, chat templates, and text that streams without broken characters.

A :class:`Tokenizer` is one record whatever wrote the vocabulary (``tokenizers``, ``sentencepiece``, GGUF metadata).
"""

from plait.text.chat_template import ChatTemplate, Limits
from plait.text.detokenizer import Detokenizer
from plait.text.error import TokenizerError
from plait.text.folder import load_tokenizer
from plait.text.gguf import tokenizer_from_gguf
from plait.text.tokenizer import Segmenter, Tokenizer

__all__ = [
    "ChatTemplate",
    "Detokenizer",
    "Limits",
    "Segmenter",
    "Tokenizer",
    "TokenizerError",
    "load_tokenizer",
    "tokenizer_from_gguf",
]
