"""WordPiece built from a vocabulary and the few switches of BERT's own rule for cutting text into words."""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers

CONTINUES = "##"  # in front of a piece that goes on with a word
LONGEST_WORD = 100  # characters; a longer word is the unknown token


def word_piece(
    vocab: Mapping[str, int],
    *,
    unknown: str,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    splits_chinese: bool = True,
) -> Library:
    """A WordPiece of the ``tokenizers`` library; ``strip_accents`` of ``None`` goes with ``lowercase``."""
    library = Library(models.WordPiece(dict(vocab), unk_token=unknown, max_input_chars_per_word=LONGEST_WORD))
    library.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=splits_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix=CONTINUES, cleanup=False)
    return library
