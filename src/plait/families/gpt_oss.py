"""gpt-oss: experts with biases and bounded gates, sinks in attention, a window in every other layer.

Published in MXFP4; matrices are stored (in, out), an expert's gates by turns with what they gate.
"""

from plait.families.binding import via
from plait.families.experts import mixture
from plait.families.llama import LLAMA
from plait.families.operations import STRIPES, TRANSPOSE_EACH
from plait.families.rope import rotary
from plait.families.settings import insisting, key
from plait.families.windows import listed_windows

EXPERTS = "decoder.layers.{i}.ffn.experts"
YARN = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}

GPT_OSS = LLAMA.relative(
    "gpt_oss",
    classes=("GptOssForCausalLM", "GptOssModel"),
    settings={
        **rotary(131072, theta=150000.0, assumed=YARN),
        "vocab_size": key("vocab_size", 201088),
        "d_model": key("hidden_size", 2880),
        "n_decoder_layers": key("num_hidden_layers", 36),
        "n_heads": key("num_attention_heads", 64),
        "n_kv_heads": key("num_key_value_heads", 8, nullable=True),
        "d_head": key("head_dim", 64, nullable=True),
        "d_ff": key("intermediate_size", 2880),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "qkv_bias": key("attention_bias", True),
        "output_bias": key("attention_bias", True),
        "ffn_bias": True,
        "attention_sinks": True,
        "activation": insisting("quick_gelu", swiglu_alpha=1.702),
        "glu_limit": key("swiglu_limit", 7.0),
        "glu_offset": 1.0,
        "layer_types": listed_windows(128, lambda layer, _: layer % 2 == 0),
        "experts": mixture(
            key("num_local_experts", 128),
            key("num_experts_per_tok", 4),
            key("intermediate_size", 2880),
            router="softmax_topk",
            router_bias=True,
        ),
    },
    weights={
        "decoder.layers.{i}.attention.sinks": "layers.{i}.self_attn.sinks",
        "decoder.layers.{i}.ffn.router": "layers.{i}.mlp.router",
        EXPERTS + ".{gate,up}.weight": via("layers.{i}.mlp.experts.gate_up_proj", TRANSPOSE_EACH, STRIPES),
        EXPERTS + ".{gate,up}.bias": via("layers.{i}.mlp.experts.gate_up_proj_bias", STRIPES),
        EXPERTS + ".down.weight": via("layers.{i}.mlp.experts.down_proj", TRANSPOSE_EACH),
        EXPERTS + ".down.bias": "layers.{i}.mlp.experts.down_proj_bias",
    },
    synonyms={"num_experts": "num_local_experts"},
    ignored=frozenset({"hidden_act", "initial_context_length", "experts_per_token"}),
    ids={},
    tokenizer=None,
)
