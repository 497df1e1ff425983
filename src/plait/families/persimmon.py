"""Persimmon: LayerNorm, also on queries and keys, half of each head turned, a squared relu; q, k and v together."""

from plait.families.binding import via
from plait.families.llama import LLAMA
from plait.families.operations import ACTIVATION, GROUP, chosen
from plait.families.rope import rotary
from plait.families.settings import key

PERSIMMON = LLAMA.relative(
    "persimmon",
    classes=("PersimmonForCausalLM", "PersimmonModel"),
    settings={
        "vocab_size": key("vocab_size", 262144),
        "n_decoder_layers": key("num_hidden_layers", 36),
        "n_heads": key("num_attention_heads", 64),
        "n_kv_heads": None,
        "d_head": None,
        "d_ff": key("intermediate_size", 16384),
        "norm": "layernorm",
        "norm_eps": key("layer_norm_eps", 1e-5),
        **rotary(16384, partial=0.5, partial_by_default=True),
        "qkv_bias": True,
        "output_bias": True,
        "qk_norm": key("qk_layernorm", True, chosen("head", None)),
        "activation": key("hidden_act", "relu2", ACTIVATION),
        "gated": False,
        "ffn_bias": True,
    },
    weights={
        "decoder.layers.{i}.attention.{query,key,value,output}": None,
        "decoder.layers.{i}.attention.{query,key,value}": via("layers.{i}.self_attn.query_key_value", GROUP),
        "decoder.layers.{i}.attention.output": "layers.{i}.self_attn.dense",
        "decoder.layers.{i}.attention.{query,key}_norm": "layers.{i}.self_attn.{q,k}_layernorm",
        "decoder.layers.{i}.ffn.{gate,up,down}": None,
        "decoder.layers.{i}.ffn.{up,down}": "layers.{i}.mlp.{dense_h_to_4h,dense_4h_to_h}",
        "decoder.norm": "final_layernorm",
    },
    ignored=frozenset({"hidden_dropout", "num_key_value_heads"}),
    tokenizer=None,
)
