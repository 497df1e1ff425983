"""InternLM 3: Llama whose biases of queries, keys and values have a switch apart from all others."""

from plait.families.llama import LLAMA
from plait.families.rope import rotary
from plait.families.settings import key

INTERNLM3 = LLAMA.relative(
    "internlm3",
    classes=("LlamaForCausalLM", "LlamaModel"),  # with this config
    settings={
        **rotary(32768),
        "vocab_size": key("vocab_size", 128512),
        "n_decoder_layers": key("num_hidden_layers", 48),
        "n_kv_heads": key("num_key_value_heads", 2, nullable=True),
        "d_head": key("head_dim", 128, nullable=True),
        "d_ff": key("intermediate_size", 10240),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "output_bias": key("mlp_bias", False),
    },
    synonyms={"qkv_bias": "attention_bias", "bias": "mlp_bias"},
    ids={"pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
    tokenizer=None,
)
