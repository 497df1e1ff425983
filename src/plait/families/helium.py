"""Helium: Llama with neighbouring dimensions turned together."""

from plait.families.llama import LLAMA
from plait.families.rope import rotary
from plait.families.settings import key

HELIUM = LLAMA.relative(
    "helium",
    classes=("HeliumForCausalLM", "HeliumModel"),
    settings={
        **rotary(4096, theta=1e5, interleaved=True),
        "vocab_size": key("vocab_size", 48000),
        "d_model": key("hidden_size", 2560),
        "n_decoder_layers": key("num_hidden_layers", 24),
        "n_heads": key("num_attention_heads", 20),
        "n_kv_heads": key("num_key_value_heads", 20),
        "d_head": key("head_dim", 128),
        "d_ff": key("intermediate_size", 7040),
        "norm_eps": key("rms_norm_eps", 1e-8),
        "output_bias": False,
    },
    limits={"d_head": (lambda a: a.d_head * a.n_heads == a.d_model, "d_model / n_heads")},  # as its output takes them
    ids={"pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2},
)
