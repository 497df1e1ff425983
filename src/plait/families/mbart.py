"""mBART: BART with norms before each block and at the end of each tower.

Blenderbot and Pegasus leave out the norm on embeddings and count from 0, Pegasus with Marian's sinusoids.
"""

from plait.architecture import Sinusoid
from plait.families.bart import BART
from plait.families.settings import key
from plait.families.towers import norms, shared_table

MBART = BART.relative(
    "mbart",
    classes=("MBartForConditionalGeneration", "MBartModel"),
    settings={"norm_placement": "pre"},
    weights={**norms("before"), "{tower}.norm": "{tower}.layer_norm"},
    ignored=BART.ignored | {"normalize_before", "add_final_layer_norm"},
    ids={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": 2},
    tokenizer="MBartTokenizer",
)

BLENDERBOT = MBART.relative(
    "blenderbot",
    classes=("BlenderbotForConditionalGeneration", "BlenderbotModel"),
    settings={
        "vocab_size": key("vocab_size", 8008),
        "d_model": key("d_model", 2560),
        "n_encoder_layers": key("encoder_layers", 2),
        "n_decoder_layers": key("decoder_layers", 24),
        "n_heads": key("decoder_attention_heads", 32),
        "d_ff": key("decoder_ffn_dim", 10240),
        "encoder": shared_table(32, 10240),
        "position_offset": 0,
        "max_length": key("max_position_embeddings", 128),
        "embedding_norm": False,
    },
    ignored=MBART.ignored | {"do_blenderbot_90_layernorm", "extra_layer_norm", "layernorm_variant"},
    ids={"bos_token_id": 1, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    | {"forced_eos_token_id": 2},
    tokenizer=None,
)

PEGASUS = MBART.relative(
    "pegasus",
    classes=("PegasusForConditionalGeneration", "PegasusModel"),
    settings={
        "position": "sinusoidal",
        "position_offset": 0,
        "sinusoid": Sinusoid(layout="halves"),
        "embedding_norm": False,
    },
    sinusoids=(r"(encoder|decoder)\.embed_positions\.weight",),
    ids={"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": 1},
    tokenizer="PegasusTokenizer",
)
