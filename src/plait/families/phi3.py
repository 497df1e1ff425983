"""Phi-3 and Phi-4: Llama with queries, keys and values in one matrix, gate and up in another."""

from plait.families.binding import via
from plait.families.llama import LLAMA, NO_BIAS
from plait.families.operations import CAT
from plait.families.rope import rotary
from plait.families.settings import insisting, key
from plait.families.windows import uniform_window

PHI3 = LLAMA.relative(
    "phi3",
    classes=("Phi3ForCausalLM", "Phi3Model"),
    settings={
        **NO_BIAS,
        **rotary(4096, partial_by_default=True, original=4096, kinds={"su": "longrope", "yarn": "longrope"}),
        "vocab_size": key("vocab_size", 32064),
        "d_model": key("hidden_size", 3072),
        "d_ff": key("intermediate_size", 8192),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "layer_types": uniform_window(None),
        "gated": insisting(True, lm_head_bias=False, full_attn_mod=1, interpolate_factor=1),  # of its own code
    },
    weights={
        "decoder.layers.{i}.attention.{query,key,value,output}": None,
        "decoder.layers.{i}.attention.{query,key,value}": via("layers.{i}.self_attn.qkv_proj", CAT),
        "decoder.layers.{i}.attention.output": "layers.{i}.self_attn.o_proj",
        "decoder.layers.{i}.ffn.{gate,up,down}": None,
        "decoder.layers.{i}.ffn.{gate,up}": via("layers.{i}.mlp.gate_up_proj", CAT),
        "decoder.layers.{i}.ffn.down": "layers.{i}.mlp.down_proj",
    },
    limits={
        "rope.scaling": (
            lambda a: not a.rope or a.rope.scaling is None or a.rope.scaling.kind == "longrope",
            "longrope, or none",
        )
    },
    ids={"bos_token_id": 1, "eos_token_id": 32000, "pad_token_id": 32000},
)
