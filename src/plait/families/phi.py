"""Phi 1, 1.5 and 2: attention and FFN side by side behind one norm, half of each head turned, biases everywhere."""

from plait.families.llama import LLAMA
from plait.families.operations import chosen, preferring
from plait.families.rope import rotary
from plait.families.settings import key

PHI = LLAMA.relative(
    "phi",
    classes=("PhiForCausalLM", "PhiModel"),
    settings={
        "vocab_size": key("vocab_size", 51200),
        "d_model": key("hidden_size", 2048),
        "n_decoder_layers": key("num_hidden_layers", 24),
        "d_ff": key("intermediate_size", 8192),
        "norm": "layernorm",
        "norm_eps": key("layer_norm_eps", 1e-5),
        "parallel": "shared",
        **rotary(2048, partial=0.5, partial_by_default=True),
        "qkv_bias": True,
        "output_bias": True,
        "qk_norm": key("qk_layernorm", False, chosen("head", None)),
        "activation": key("hidden_act", "gelu_new", preferring("gelu_new")),
        "gated": False,
        "ffn_bias": True,
        "logit_bias": True,
    },
    weights={
        "decoder.layers.{i}.attention.{query,key,value,output}": None,
        "decoder.layers.{i}.attention.{query,key,value}": "layers.{i}.self_attn.{q,k,v}_proj",
        "decoder.layers.{i}.attention.output": "layers.{i}.self_attn.dense",
        "decoder.layers.{i}.attention.{query,key}_norm": "layers.{i}.self_attn.{q,k}_layernorm",
        "decoder.layers.{i}.ffn.{gate,up,down}": None,
        "decoder.layers.{i}.ffn.{up,down}": "layers.{i}.mlp.{fc1,fc2}",
        "decoder.norm": "final_layernorm",
    },
    tokenizer="GPT2Tokenizer",
)
