"""IQuest-Coder: Llama with sizes of its own."""

from plait.families.llama import LLAMA
from plait.families.rope import rotary
from plait.families.settings import key

IQUESTCODER = LLAMA.relative(
    "iquestcoder",
    classes=("LlamaForCausalLM", "LlamaModel"),  # with this config
    settings={
        **rotary(131072),
        "vocab_size": key("vocab_size", 76800),
        "d_model": key("hidden_size", 5120),
        "n_decoder_layers": key("num_hidden_layers", 80),
        "n_heads": key("num_attention_heads", 40),
        "n_kv_heads": key("num_key_value_heads", 8, nullable=True),
        "d_head": key("head_dim", 128, nullable=True),
        "d_ff": key("intermediate_size", 27648),
        "norm_eps": key("rms_norm_eps", 1e-5),
    },
    tokenizer=None,
)
