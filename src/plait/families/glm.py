"""GLM-4: Llama with half of each head turned, neighbouring dimensions together. GLM-4-0414: norms after blocks too."""

from plait.families.binding import via
from plait.families.llama import LLAMA
from plait.families.operations import CAT
from plait.families.rope import rotary
from plait.families.settings import key

GLM = LLAMA.relative(
    "glm",
    classes=("GlmForCausalLM", "GlmModel"),
    settings={
        **rotary(131072, partial=0.5, partial_by_default=True, interleaved=True),
        "vocab_size": key("vocab_size", 151552),
        "n_decoder_layers": key("num_hidden_layers", 40),
        "n_kv_heads": key("num_key_value_heads", 2),
        "d_head": key("head_dim", 128),
        "d_ff": key("intermediate_size", 13696),
        "norm_eps": key("rms_norm_eps", 1.5625e-7),
        "qkv_bias": key("attention_bias", True),
        "output_bias": False,
        "ffn_bias": False,
    },
    weights={
        "decoder.layers.{i}.ffn.{gate,up,down}": None,
        "decoder.layers.{i}.ffn.{gate,up}": via("layers.{i}.mlp.gate_up_proj", CAT),
        "decoder.layers.{i}.ffn.down": "layers.{i}.mlp.down_proj",
    },
    ids={"pad_token_id": 151329, "eos_token_id": [151329, 151336, 151338]},
    tokenizer=None,
)

GLM4 = GLM.relative(
    "glm4",
    classes=("Glm4ForCausalLM", "Glm4Model"),
    settings={"norm_placement": "sandwich"},
    weights={
        "decoder.layers.{i}.attention_norms.after": "layers.{i}.post_self_attn_layernorm",
        "decoder.layers.{i}.ffn_norms.after": "layers.{i}.post_mlp_layernorm",
    },
)
