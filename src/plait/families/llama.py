"""Llama and its nearest relatives: RMSNorm before each block, rotations, a gated FFN, no biases unless asked."""

from plait.families.family import Family
from plait.families.operations import ACTIVATION
from plait.families.rope import rotary
from plait.families.settings import key
from plait.families.windows import uniform_window

LLAMA = Family(
    name="llama",
    model_types=("llama",),
    classes=("LlamaForCausalLM", "LlamaModel"),
    settings={
        "vocab_size": key("vocab_size", 32000),
        "d_model": key("hidden_size", 4096),
        "n_decoder_layers": key("num_hidden_layers", 32),
        "n_heads": key("num_attention_heads", 32),
        "n_kv_heads": key("num_key_value_heads", None),
        "d_head": key("head_dim", None),
        "d_ff": key("intermediate_size", 11008),
        "norm": "rmsnorm",
        "norm_eps": key("rms_norm_eps", 1e-6),
        "qkv_bias": key("attention_bias", False),
        "output_bias": key("attention_bias", False),
        "ffn_bias": key("mlp_bias", False),
        "activation": key("hidden_act", "silu", ACTIVATION),
        "gated": True,
        **rotary(2048),
    },
    weights={
        "embedding.tokens": "embed_tokens",
        "decoder.layers.{i}.attention_norms.before": "layers.{i}.input_layernorm",
        "decoder.layers.{i}.attention.{query,key,value,output}": "layers.{i}.self_attn.{q,k,v,o}_proj",
        "decoder.layers.{i}.ffn_norms.before": "layers.{i}.post_attention_layernorm",
        "decoder.layers.{i}.ffn.{gate,up,down}": "layers.{i}.mlp.{gate,up,down}_proj",
        "decoder.norm": "norm",
        "head.output": "lm_head",
    },
    prefix="model.",
    leftovers=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"rotary_emb\.inv_freq"),
    ids={"bos_token_id": 1, "eos_token_id": 2},
    tokenizer="LlamaTokenizer",
)

NO_BIAS = {"qkv_bias": False, "output_bias": False, "ffn_bias": False}

MISTRAL = LLAMA.relative(
    "mistral",
    classes=("MistralForCausalLM", "MistralModel"),
    settings={
        **NO_BIAS,
        **rotary(131072),
        "n_kv_heads": key("num_key_value_heads", 8, nullable=True),
        "d_ff": key("intermediate_size", 14336),
        "layer_types": uniform_window(4096),
    },
)
