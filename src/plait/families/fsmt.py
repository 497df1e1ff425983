"""FSMT: fairseq's Transformer of 2019, BART with sinusoids from the pad id and a vocabulary for each language."""

from typing import Any

from plait.architecture import EncoderDifferences, Sinusoid
from plait.families.bart import BART
from plait.families.heads import TIE_KEY
from plait.families.operations import ACTIVATION, ROOT_OF_WIDTH, Fields, plus
from plait.families.settings import Reading, Setting, key
from plait.families.towers import KEYS, TABLES, sizes, spell_sizes


def _encoder(reading: Reading) -> EncoderDifferences | None:
    """The flag joins both tables and the head; where the file has two, they are two."""
    own = sizes(reading, 16, 4096)
    alone = reading.config.get(TIE_KEY) and not reading.differ(*TABLES)
    if not alone and reading.has(TABLES[0], unknown=True):
        own["vocab_size"] = reading.config.get("src_vocab_size") or 42024
    return EncoderDifferences(**own) if own else None


def _spell(own: EncoderDifferences | None, fields: Fields) -> dict[str, Any]:
    source = own.vocab_size if own else None
    return {
        **spell_sizes(own, fields),
        "src_vocab_size": source or fields["vocab_size"],
        TIE_KEY: source is None,
    }


FSMT = BART.relative(
    "fsmt",
    classes=("FSMTForConditionalGeneration", "FSMTModel"),
    settings={
        "vocab_size": key("tgt_vocab_size", 42024),
        "encoder": Setting((*KEYS, "src_vocab_size", TIE_KEY), _encoder, _spell),
        "position": "sinusoidal",
        "position_offset": key("pad_token_id", 1, plus(1)),
        "sinusoid": Sinusoid(layout="halves", denominator="half_minus_one"),
        "activation": key("activation_function", "relu", ACTIVATION),
        "embedding_scale": key("scale_embedding", True, ROOT_OF_WIDTH),
        "embedding_norm": False,
        "logit_bias": False,
    },
    weights={
        "embedding.tokens": "decoder.embed_tokens",
        # Inside the decoder: the bare class has it as well, and answers with logits
        "head.output.weight": "model.decoder.output_projection.weight",
        "head.output.bias": None,
    },
    aliases={TABLES[0]: "embedding.tokens.weight"},
    leftovers=(r"(encoder|decoder)\.embed_positions\.weights",),
    sinusoids=(r"(encoder|decoder)\.embed_positions\.weight",),
    synonyms={**BART.synonyms, "vocab_size": "tgt_vocab_size"},
    ignored=BART.ignored | {"langs", "decoder"},
    ids={
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    tokenizer=None,
)
