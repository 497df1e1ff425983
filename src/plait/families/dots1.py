"""dots.llm1: Qwen 3 with GLM-4.5's experts, and windows from a layer on."""

from plait.families.experts import TOGETHER, after_first, grouped, times
from plait.families.glm4_moe import SHARED, WIDTH
from plait.families.qwen import QWEN3
from plait.families.rope import rotary
from plait.families.settings import insisting, key
from plait.families.windows import listed_windows

DOTS1 = QWEN3.relative(
    "dots1",
    classes=("Dots1ForCausalLM", "Dots1Model"),
    settings={
        **rotary(2048),
        "vocab_size": key("vocab_size", 152064),
        "d_model": key("hidden_size", 4608),
        "n_decoder_layers": key("num_hidden_layers", 62),
        "d_head": key("head_dim", None),
        "d_ff": key("intermediate_size", 10944),
        "layer_types": after_first(
            0,
            listed_windows(
                4096,
                lambda layer, config: layer >= config.get("max_window_layers", 62),
                reads=("max_window_layers",),
            ),
        ),
        "experts": insisting(
            grouped(
                n_experts=key("n_routed_experts", None),
                per_token=key("num_experts_per_tok", None),
                width=WIDTH,
                renormalize=key("norm_topk_prob", False),
                d_shared=times("n_shared_experts", WIDTH),
            ),
            moe_layer_freq=1,
        ),
    },
    weights=SHARED,
    together=TOGETHER,
    synonyms={"num_local_experts": "n_routed_experts"},
    ignored=frozenset({"scoring_func", "topk_method", "aux_loss_alpha", "seq_aux", "ep_size"}),
)
