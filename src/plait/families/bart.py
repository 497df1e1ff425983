"""BART: an encoder-decoder with LayerNorm after every sum, learned positions from 2.

Marian: sinusoids instead, and perhaps a table of tokens for each side.
"""

from typing import Any

from plait.architecture import EncoderDifferences, Sinusoid
from plait.families.binding import Either, via
from plait.families.errors import FamilyError
from plait.families.family import Family
from plait.families.heads import head_by_class
from plait.families.operations import ACTIVATION, ROOT_OF_WIDTH, ROW, Fields, preferring
from plait.families.settings import Reading, Setting, key, stored

TABLES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")

SHARED, HEAD = "model.shared.weight", "lm_head.weight"


def _encoder(reading: Reading) -> EncoderDifferences | None:
    """The encoder's own heads, FFN and vocabulary, where they are not the decoder's."""
    config = reading.config
    heads, d_ff = config.get("encoder_attention_heads") or 16, config.get("encoder_ffn_dim") or 4096
    own: dict[str, Any] = {}
    if heads != reading["n_heads"]:
        own |= {"n_heads": heads, "d_head": reading["d_model"] // heads}
    if d_ff != reading["d_ff"]:
        own["d_ff"] = d_ff
    if config.get("share_encoder_decoder_embeddings") is False or reading.differ(*TABLES):
        own["vocab_size"] = config.get("vocab_size") or reading["vocab_size"]
    _check_head(reading)
    return EncoderDifferences(**own) if own else None


def _check_head(reading: Reading) -> None:
    """A head that is not stored is the shared table; plait has none beside the decoder's own."""
    if reading.config.get("share_encoder_decoder_embeddings") is False:  # Marian: the head is the decoder's table
        return
    has_head = head_by_class(reading.config, True, BART.classes) is not False
    if has_head and not reading.has(HEAD, unknown=True) and reading.differ(SHARED, TABLES[1]):
        raise FamilyError(
            f"{TABLES[1]}: it differs from {SHARED}, which is the head where no {HEAD} is stored; store the head."
        )


def _spell_encoder(own: EncoderDifferences | None, fields: Fields) -> dict[str, Any]:
    own = own or EncoderDifferences()
    return {
        "encoder_attention_heads": own.n_heads or fields["n_heads"],
        "encoder_ffn_dim": own.d_ff or fields["d_ff"],
    }


def _spell_shared(own: EncoderDifferences | None, fields: Fields) -> dict[str, Any]:
    if own and own.vocab_size and fields["tied"]:
        raise FamilyError(
            "encoder.vocab_size: bart has one table where its head is tied; untie it, or share the table."
        )
    return _spell_encoder(own, fields)


ENCODER_KEYS = ("encoder_attention_heads", "encoder_ffn_dim")
BART = Family(
    name="bart",
    model_types=("bart",),
    classes=("BartForConditionalGeneration", "BartModel"),
    settings={
        "vocab_size": key("vocab_size", 50265),
        "d_model": key("d_model", 1024),
        "n_encoder_layers": key("encoder_layers", 12),
        "n_decoder_layers": key("decoder_layers", 12),
        "n_heads": key("decoder_attention_heads", 16),
        "d_ff": key("decoder_ffn_dim", 4096),
        "encoder": Setting(ENCODER_KEYS, _encoder, _spell_shared),
        "norm_eps": 1e-5,
        "norm_placement": "post",
        "position": "learned",
        "position_offset": 2,
        "max_length": key("max_position_embeddings", 1024),
        "activation": key("activation_function", "gelu", ACTIVATION),
        "embedding_scale": key("scale_embedding", False, ROOT_OF_WIDTH),
        "embedding_norm": True,
        "logit_bias": stored("final_logits_bias"),
    },
    weights={
        "embedding.tokens": Either("shares_embedding", "shared", "decoder.embed_tokens"),
        "source_embedding.tokens": "encoder.embed_tokens",
        "{source_embedding,embedding}.positions": "{encoder,decoder}.embed_positions",
        "{source_embedding,embedding}.norm": "{encoder,decoder}.layernorm_embedding",
        "{tower}.layers.{i}.attention.{query,key,value,output}": "{tower}.layers.{i}.self_attn.{q,k,v,out}_proj",
        "{tower}.layers.{i}.attention_norms.merge": "{tower}.layers.{i}.self_attn_layer_norm",
        "decoder.layers.{i}.cross.{query,key,value,output}": "decoder.layers.{i}.encoder_attn.{q,k,v,out}_proj",
        "decoder.layers.{i}.cross_norms.merge": "decoder.layers.{i}.encoder_attn_layer_norm",
        "{tower}.layers.{i}.ffn.{up,down}": "{tower}.layers.{i}.{fc1,fc2}",
        "{tower}.layers.{i}.ffn_norms.merge": "{tower}.layers.{i}.final_layer_norm",
        "head.output.weight": "lm_head.weight",
        "head.output.bias": via("final_logits_bias", ROW),
    },
    tied=None,  # the key asks for one table on both sides as well
    prefix="model.",
    aliases=dict.fromkeys(TABLES, "embedding.tokens.weight"),
    leftovers=(r"(encoder|decoder)\.version", r"shared\.weight"),  # shared, beside two tables that differ
    synonyms={
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    },
    ignored=frozenset(
        "normalize_embedding static_position_embeddings extra_pos_embeddings is_decoder is_encoder_decoder".split()
    ),
    ids={
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    tokenizer="BartTokenizer",
)


def _vocabulary(reading: Reading) -> int:
    config = reading.config
    words = config.get("vocab_size") or 58101
    return words if config.get("share_encoder_decoder_embeddings", True) else config.get("decoder_vocab_size") or words


def _spell_vocabulary(words: int, fields: Fields) -> dict[str, Any]:
    own = fields["encoder"].vocab_size if fields["encoder"] else None
    return {"vocab_size": own or words, "decoder_vocab_size": words, "share_encoder_decoder_embeddings": own is None}


MARIAN = BART.relative(
    "marian",
    classes=("MarianMTModel", "MarianModel"),
    settings={
        "vocab_size": Setting(
            ("vocab_size", "decoder_vocab_size", "share_encoder_decoder_embeddings"), _vocabulary, _spell_vocabulary
        ),
        "encoder": Setting(ENCODER_KEYS, _encoder, _spell_encoder),
        "position": "sinusoidal",
        "position_offset": 0,
        "sinusoid": Sinusoid(layout="halves"),
        "activation": key("activation_function", "gelu", preferring("swish")),
        "embedding_norm": False,
    },
    leftovers=(r"(encoder|decoder)\.embed_positions\.weight", r"shared\.weight"),
    # The class's own pad and start are words that a smaller vocabulary does not have
    extra=lambda a: {"pad_token_id": a.vocab_size - 1, "decoder_start_token_id": a.vocab_size - 1},
    ids={"eos_token_id": 0, "forced_eos_token_id": 0, "pad_token_id": 58100},
    starts_with_pad=True,
    tokenizer="MarianTokenizer",
)
