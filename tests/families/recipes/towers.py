"""Encoder-decoders: BART's and T5's lines."""

from __future__ import annotations

from typing import Any

from tests.families.recipes.base import BOTH, SMALL, T5_SMALL, Recipe, without

FSMT = without(BOTH, "vocab_size") | {"src_vocab_size": 61, "tgt_vocab_size": 53}


def both(config: str, model: str, **settings: Any) -> Recipe:
    return Recipe(f"{config}Config", f"{config}{model}", BOTH | settings)


def t5(config: str, **settings: Any) -> Recipe:
    return Recipe(f"{config}Config", f"{config}ForConditionalGeneration", T5_SMALL | settings, (23,), stored_head=True)


# Gemma 2's settings, for both towers of T5Gemma
GEMMA = SMALL | {"sliding_window": 4, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 2.0}
GEMMA |= {"final_logit_softcapping": 20.0}
GENERATES = "ForConditionalGeneration"

RECIPES: dict[str, Recipe] = {
    "plbart": both("PLBart", GENERATES),
    "mvp": both("Mvp", GENERATES),
    "mbart": both("MBart", GENERATES, scale_embedding=True),
    "mbart-relu": both("MBart", GENERATES, activation_function="relu"),
    "mbart-bare": both("MBart", "Model"),
    "blenderbot": both("Blenderbot", GENERATES, scale_embedding=True),
    "pegasus": both("Pegasus", GENERATES, scale_embedding=True, activation_function="relu"),
    "m2m_100": both("M2M100", GENERATES, pad_token_id=1, bos_token_id=0),
    "m2m_100-pad3": both("M2M100", GENERATES, pad_token_id=3, scale_embedding=False, tie_word_embeddings=False),
    "m2m_100-bare": both("M2M100", "Model", pad_token_id=1),
    "fsmt": Recipe("FSMTConfig", "FSMTForConditionalGeneration", FSMT),
    "fsmt-bare": Recipe("FSMTConfig", "FSMTModel", FSMT),
    "fsmt-pad1": Recipe(
        "FSMTConfig",
        "FSMTForConditionalGeneration",
        FSMT | {"pad_token_id": 1, "bos_token_id": 0, "tgt_vocab_size": 61, "activation_function": "swish"},
    ),
    "fsmt-one-table": Recipe(
        "FSMTConfig", "FSMTForConditionalGeneration", FSMT | {"tgt_vocab_size": 61, "tie_word_embeddings": True}
    ),
    "mt5": t5("MT5"),
    "mt5-relu": t5("MT5", feed_forward_proj="relu"),
    "umt5": t5("UMT5"),
    "umt5-unscaled": t5("UMT5", tie_word_embeddings=False, feed_forward_proj="gated-silu"),
    "byt5": t5("T5", feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_layers=4, num_decoder_layers=2),
    "t5-encoder": Recipe("T5Config", "T5EncoderModel", T5_SMALL, (23,)),
    "mt5-encoder": Recipe("MT5Config", "MT5EncoderModel", T5_SMALL, (23,)),
    "umt5-encoder": Recipe("UMT5Config", "UMT5EncoderModel", T5_SMALL, (23,)),
    "t5gemma": Recipe(
        "T5GemmaConfig",
        "T5GemmaForConditionalGeneration",
        {
            "vocab_size": 61,
            "decoder": GEMMA,
            "encoder": GEMMA
            | {"intermediate_size": 52, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 14}
            | {"num_hidden_layers": 4, "query_pre_attn_scalar": 9, "vocab_size": 53},
        },
    ),
    "t5gemma-bare": Recipe("T5GemmaConfig", "T5GemmaModel", {"vocab_size": 61, "decoder": GEMMA, "encoder": GEMMA}),
}
