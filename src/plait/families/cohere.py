"""Command R: attention and FFN side by side after a LayerNorm without bias, neighbouring dimensions turn together."""

from plait.families.llama import LLAMA
from plait.families.operations import chosen
from plait.families.rope import rotary
from plait.families.settings import key

COHERE = LLAMA.relative(
    "cohere",
    classes=("CohereForCausalLM", "CohereModel"),
    settings={
        **rotary(8192, theta=5e5, interleaved=True),
        "vocab_size": key("vocab_size", 256000),
        "d_model": key("hidden_size", 8192),
        "n_decoder_layers": key("num_hidden_layers", 40),
        "n_heads": key("num_attention_heads", 64),
        "d_ff": key("intermediate_size", 22528),
        "norm": "layernorm",
        "norm_bias": False,
        "norm_eps": key("layer_norm_eps", 1e-5),
        "parallel": "shared",
        "qk_norm": key("use_qk_norm", False, chosen("per_head", None)),
        "ffn_bias": False,
        "logit_scale": key("logit_scale", 0.0625),
    },
    weights={
        "decoder.layers.{i}.ffn_norms.before": None,
        "decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{q,k}_norm",
    },
    tied=True,
    ignored=frozenset({"model_max_length"}),
    ids={"pad_token_id": 0, "bos_token_id": 5, "eos_token_id": 255001},
    tokenizer=None,
)
