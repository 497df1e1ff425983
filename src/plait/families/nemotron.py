"""Nemotron (and Minitron): Llama with LayerNorm that scales by 1 + w, half of each head turned, a squared relu.

Jais 2: plain LayerNorm, whole heads turned, biases.
"""

from plait.families.llama import LLAMA
from plait.families.operations import ACTIVATION
from plait.families.rope import rotary
from plait.families.settings import key

NEMOTRON = LLAMA.relative(
    "nemotron",
    classes=("NemotronForCausalLM", "NemotronModel"),
    settings={
        "vocab_size": key("vocab_size", 256000),
        "d_model": key("hidden_size", 6144),
        "n_heads": key("num_attention_heads", 48),
        "d_ff": key("intermediate_size", 24576),
        "norm": "layernorm",
        "norm_weight": "offset",
        "norm_eps": key("norm_eps", 1e-5),
        **rotary(4096, partial=0.5, partial_by_default=True),
        "activation": key("hidden_act", "relu2", ACTIVATION),
        "gated": False,
    },
    weights={
        "decoder.layers.{i}.ffn.{gate,up,down}": None,
        "decoder.layers.{i}.ffn.{up,down}": "layers.{i}.mlp.{up,down}_proj",
    },
    ignored=frozenset({"rope_percent", "kv_channels", "num_query_groups"}),
    ids={"bos_token_id": 2, "eos_token_id": 3},
    tokenizer=None,
)

JAIS2 = NEMOTRON.relative(
    "jais2",
    classes=("Jais2ForCausalLM", "Jais2Model"),
    settings={
        "vocab_size": key("vocab_size", 150272),
        "d_model": key("hidden_size", 3328),
        "n_heads": key("num_attention_heads", 26),
        "d_ff": key("intermediate_size", 26624),
        "norm_weight": "plain",
        "norm_eps": key("layer_norm_eps", 1e-5),
        **rotary(8192),
        "qkv_bias": key("attention_bias", True),
        "output_bias": key("attention_bias", True),
        "ffn_bias": key("mlp_bias", True),
    },
    ignored=frozenset(),
    ids={"bos_token_id": 0, "eos_token_id": 150024},
    tokenizer="GPT2Tokenizer",
)
