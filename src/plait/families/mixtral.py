"""Mixtral: Mistral with experts in every layer."""

from plait.families.experts import TOGETHER, mixture
from plait.families.llama import MISTRAL
from plait.families.rope import rotary
from plait.families.settings import key
from plait.families.windows import uniform_window

N_EXPERTS, PER_TOKEN = "num_local_experts", "num_experts_per_tok"

MIXTRAL = MISTRAL.relative(
    "mixtral",
    classes=("MixtralForCausalLM", "MixtralModel"),
    settings={
        **rotary(131072, theta=1e6),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "layer_types": uniform_window(None),
        "experts": mixture(
            key(N_EXPERTS, 8), key(PER_TOKEN, 2), key("intermediate_size", 14336), router="softmax", renormalize=True
        ),
    },
    weights={
        "decoder.layers.{i}.ffn.router": "layers.{i}.block_sparse_moe.gate",
        "decoder.layers.{i}.ffn.experts.{gate,up,down}": "layers.{i}.block_sparse_moe.experts.{e}.{w1,w3,w2}",
    },
    together={**TOGETHER, "decoder.layers.{i}.ffn.router": "layers.{i}.mlp.gate"},
    synonyms={"num_experts": N_EXPERTS},
)
