"""PLBART and MVP: BART trained on programs, and BART trained on many tasks."""

from plait.families.bart import BART
from plait.families.operations import ROOT_OF_WIDTH
from plait.families.settings import key
from plait.families.towers import shared_table

PLBART = BART.relative(
    "plbart",
    classes=("PLBartForConditionalGeneration", "PLBartModel"),
    settings={
        "vocab_size": key("vocab_size", 50005),
        "d_model": key("d_model", 768),
        "n_encoder_layers": key("encoder_layers", 6),
        "n_decoder_layers": key("decoder_layers", 6),
        "n_heads": key("decoder_attention_heads", 12),
        "d_ff": key("decoder_ffn_dim", 3072),
        "encoder": shared_table(12, 3072),
        "embedding_scale": key("scale_embedding", True, ROOT_OF_WIDTH),
    },
    ids={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": 2},
    tokenizer=None,
)

MVP = BART.relative(
    "mvp",
    classes=("MvpForConditionalGeneration", "MvpModel"),
    settings={"vocab_size": key("vocab_size", 50267)},
    ignored=BART.ignored | {"prompt_length", "prompt_mid_dim"},
    ids={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
)
