"""Solar Open: GLM-4.5's experts in every layer, and heads that turn whole."""

from plait.families.experts import grouped, times
from plait.families.glm4_moe import GLM4_MOE
from plait.families.rope import rotary
from plait.families.settings import insisting, key

WIDTH = key("moe_intermediate_size", 1280)

SOLAR_OPEN = GLM4_MOE.relative(
    "solar_open",
    classes=("SolarOpenForCausalLM", "SolarOpenModel"),
    settings={
        **rotary(131072, theta=1e6, partial=1.0, partial_by_default=True),
        "vocab_size": key("vocab_size", 196608),
        "n_decoder_layers": key("num_hidden_layers", 48),
        "n_heads": key("num_attention_heads", 64),
        "d_head": key("head_dim", 128),
        "d_ff": WIDTH,  # no layer is dense
        "qk_norm": insisting(None, use_qk_norm=False),
        "layer_types": insisting((), first_k_dense_replace=0),
        "experts": grouped(
            n_experts=key("n_routed_experts", 128),
            per_token=key("num_experts_per_tok", 8),
            width=WIDTH,
            renormalize=key("norm_topk_prob", True),
            d_shared=times("n_shared_experts", WIDTH, 1),
        ),
    },
    weights={"decoder.layers.{i}.attention.{query_norm,key_norm}": None},
    further="",
    synonyms={"num_local_experts": "n_routed_experts"},
    ignored=frozenset({"intermediate_size"}),
)
