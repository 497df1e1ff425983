"""Ministral and the Code World Model: Llama with a window for some layers, listed or in a pattern."""

from plait.families.llama import LLAMA, MISTRAL, NO_BIAS
from plait.families.rope import rotary
from plait.families.settings import key
from plait.families.windows import listed_windows

MINISTRAL = MISTRAL.relative(
    "ministral",
    classes=("MinistralForCausalLM", "MinistralModel"),
    settings={"layer_types": listed_windows(4096, lambda layer, config: True)},
)

# The class scales its rotations where a config says nothing of them
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
CWM = LLAMA.relative(
    "cwm",
    classes=("CwmForCausalLM", "CwmModel"),
    settings={
        **NO_BIAS,
        **rotary(131072, theta=1e6, assumed=LLAMA3),
        "vocab_size": key("vocab_size", 128256),
        "d_model": key("hidden_size", 6144),
        "n_decoder_layers": key("num_hidden_layers", 64),
        "n_heads": key("num_attention_heads", 48),
        "n_kv_heads": key("num_key_value_heads", 8, nullable=True),
        "d_head": key("head_dim", 128, nullable=True),
        "d_ff": key("intermediate_size", 21504),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "ffn_bias": key("mlp_bias", False),
        "layer_types": listed_windows(8192, lambda layer, config: layer % 4 != 0),
    },
    ids={"bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009]},
    tokenizer=None,
)
