"""Marian: BART with sinusoids, and perhaps a table of tokens for each side."""

from typing import Any

from plait.architecture import EncoderDifferences, Sinusoid
from plait.families.bart import BART
from plait.families.operations import Fields, preferring
from plait.families.settings import Reading, Setting, key
from plait.families.towers import KEYS, TABLES, check_head, sizes, spell_sizes

SWITCH = "share_encoder_decoder_embeddings"
WORDS = 58101  # where a config does not say vocab_size


def _vocabulary(reading: Reading) -> int:
    words = reading.config.get("vocab_size") or WORDS
    return words if reading.config.get(SWITCH, True) else reading.config.get("decoder_vocab_size") or words


def _spell_vocabulary(words: int, fields: Fields) -> dict[str, Any]:
    own = fields["encoder"].vocab_size if fields["encoder"] else None
    return {"vocab_size": own or words, "decoder_vocab_size": words, SWITCH: own is None}


def _encoder(reading: Reading) -> EncoderDifferences | None:
    own, apart = sizes(reading, 16, 4096), reading.config.get(SWITCH) is False
    if apart or reading.differ(*TABLES):
        own["vocab_size"] = reading.config.get("vocab_size") or WORDS
    if not apart:  # else the head is the decoder's table
        check_head(reading)
    return EncoderDifferences(**own) if own else None


MARIAN = BART.relative(
    "marian",
    classes=("MarianMTModel", "MarianModel"),
    settings={
        "vocab_size": Setting(("vocab_size", "decoder_vocab_size", SWITCH), _vocabulary, _spell_vocabulary),
        "encoder": Setting(KEYS, _encoder, spell_sizes),
        "position": "sinusoidal",
        "position_offset": 0,
        "sinusoid": Sinusoid(layout="halves"),
        "activation": key("activation_function", "gelu", preferring("swish")),
        "embedding_norm": False,
    },
    sinusoids=(r"(encoder|decoder)\.embed_positions\.weight",),
    # The class's own pad and start are words that a smaller vocabulary does not have
    extra=lambda a: {"pad_token_id": a.vocab_size - 1, "decoder_start_token_id": a.vocab_size - 1},
    ids={"eos_token_id": 0, "forced_eos_token_id": 0, "pad_token_id": 58100},
    starts_with_pad=True,
    tokenizer="MarianTokenizer",
)
