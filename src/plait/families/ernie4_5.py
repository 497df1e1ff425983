"""ERNIE 4.5: Llama with neighbouring dimensions turned together, tied, and one switch for all biases."""

from plait.families.llama import LLAMA
from plait.families.rope import rotary
from plait.families.settings import key

ERNIE4_5 = LLAMA.relative(
    "ernie4_5",
    classes=("Ernie4_5ForCausalLM", "Ernie4_5Model"),
    settings={
        **rotary(131072, theta=5e5, interleaved=True),
        "vocab_size": key("vocab_size", 103424),
        "d_model": key("hidden_size", 1024),
        "n_decoder_layers": key("num_hidden_layers", 18),
        "n_heads": key("num_attention_heads", 16),
        "n_kv_heads": key("num_key_value_heads", 2, nullable=True),
        "d_head": key("head_dim", 128, nullable=True),
        "d_ff": key("intermediate_size", 3072),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "qkv_bias": key("use_bias", False),
        "output_bias": key("use_bias", False),
        "ffn_bias": key("use_bias", False),
    },
    tied=True,
    ignored=frozenset({"compression_ratio"}),
    ids={"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
)
