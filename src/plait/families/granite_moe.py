"""Granite with experts, all of them in one tensor: gates over what they gate, and what comes down."""

from plait.families.binding import via
from plait.families.experts import mixture
from plait.families.granite import GRANITE
from plait.families.operations import CAT_EACH
from plait.families.settings import key

GRANITEMOE = GRANITE.relative(
    "granitemoe",
    classes=("GraniteMoeForCausalLM", "GraniteMoeModel"),
    settings={
        "ffn_bias": False,
        "experts": mixture(
            key("num_local_experts", 8),
            key("num_experts_per_tok", 2),
            key("intermediate_size", 11008),
            router="softmax_topk",
        ),
    },
    weights={
        "decoder.layers.{i}.ffn.router": "layers.{i}.block_sparse_moe.router.layer",
        "decoder.layers.{i}.ffn.experts.{gate,up}": via("layers.{i}.block_sparse_moe.input_linear", CAT_EACH),
        "decoder.layers.{i}.ffn.experts.down": "layers.{i}.block_sparse_moe.output_linear",
    },
    together={
        "decoder.layers.{i}.ffn.router.weight": "layers.{i}.block_sparse_moe.router.weight",
        "decoder.layers.{i}.ffn.experts.{gate,up}.weight": via(
            "layers.{i}.block_sparse_moe.experts.gate_up_proj", CAT_EACH
        ),
        "decoder.layers.{i}.ffn.experts.down.weight": "layers.{i}.block_sparse_moe.experts.down_proj",
    },
)
