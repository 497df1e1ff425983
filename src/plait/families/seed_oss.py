"""Seed-OSS: Llama with wide heads, biases on queries, keys and values, and a switch of its own for the output's."""

from plait.families.llama import LLAMA
from plait.families.rope import rotary
from plait.families.settings import key

SEED_OSS = LLAMA.relative(
    "seed_oss",
    classes=("SeedOssForCausalLM", "SeedOssModel"),
    settings={
        **rotary(524288),
        "vocab_size": key("vocab_size", 155136),
        "n_decoder_layers": key("num_hidden_layers", 64),
        "n_heads": key("num_attention_heads", 80),
        "n_kv_heads": key("num_key_value_heads", 8, nullable=True),
        "d_head": key("head_dim", 128, nullable=True),
        "d_ff": key("intermediate_size", 27648),
        "qkv_bias": key("attention_bias", True),
        "output_bias": key("attention_out_bias", False),
    },
    ignored=frozenset({"residual_dropout"}),
    ids={"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    tokenizer=None,
)
