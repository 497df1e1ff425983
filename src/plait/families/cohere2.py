"""Command R7B and A: Command R with windows in most layers; those that see everything have no rotation."""

from plait.families.cohere import COHERE
from plait.families.rope import rotary
from plait.families.settings import insisting, key
from plait.families.windows import listed_windows

COHERE2 = COHERE.relative(
    "cohere2",
    classes=("Cohere2ForCausalLM", "Cohere2Model"),
    settings={
        **rotary(8192, interleaved=True),
        "d_head": key("head_dim", None),
        "parallel": insisting("shared", use_parallel_block=True),
        "gated": insisting(True, use_gated_activation=True),
        "qk_norm": insisting(None, use_qk_norm=False),
        "layer_types": insisting(
            listed_windows(
                4096,
                lambda layer, config: (layer + 1) % (config.get("sliding_window_pattern") or 4) != 0,
                reads=("sliding_window_pattern",),
                turns=lambda layer, slides, config: slides,
            ),
            order_of_interleaved_layers="local_attn_first",
            position_embedding_type="rope_gptj",
            rotary_pct=1.0,
        ),
    },
    weights={"decoder.layers.{i}.attention.{query_norm,key_norm}": None},
    # Of its published configs; the class does not look there
    ignored=frozenset("_sliding_window_pattern layer_switch use_embedding_sharing use_parallel_embedding".split()),
)
