"""K-EXAONE: EXAONE 4 with norms before blocks, and GLM-4.5's experts in most layers."""

from plait.architecture import Architecture, LayerType
from plait.families.exaone4 import EXAONE4
from plait.families.experts import TOGETHER, grouped, listed, times
from plait.families.glm4_moe import SHARED
from plait.families.llama import LLAMA
from plait.families.settings import insisting, key

WIDTH = key("moe_intermediate_size", 1024)
NORMS = ("decoder.layers.{i}.attention_norms.", "decoder.layers.{i}.ffn_norms.")


def _says_windows(architecture: Architecture) -> bool:
    """The class takes no null for the window, by which EXAONE 4 says that all layers turn and see everything."""
    types = architecture.layer_types or (LayerType(),)
    return all(kind.window is not None or kind.rope is None for kind in types)


EXAONE_MOE = EXAONE4.relative(
    "exaone_moe",
    classes=("ExaoneMoeForCausalLM", "ExaoneMoeModel"),
    settings={
        "norm_placement": "pre",
        "layer_types": listed(1, EXAONE4.settings["layer_types"]),
        "experts": insisting(
            grouped(
                n_experts=key("num_experts", 64),
                per_token=key("num_experts_per_tok", 8),
                width=WIDTH,
                routed_scale=key("routed_scaling_factor", 2.5),
                renormalize=key("norm_topk_prob", True),
                d_shared=times("num_shared_experts", WIDTH, 1),
            ),
            scoring_func="sigmoid",
        ),
    },
    weights={
        **{f"{norm}before": LLAMA.weights[f"{norm}before"] for norm in NORMS},
        **{f"{norm}after": None for norm in NORMS},
        **SHARED,
        "decoder.layers.{i}.ffn.router.score_bias": "layers.{i}.mlp.e_score_correction_bias",
    },
    together=TOGETHER,
    limits={"layer_types": (_says_windows, "a window in every layer that turns")},
    older={"mlp.e_score_correction_bias": "mlp.gate.e_score_correction_bias"},  # where all experts are together
    leftovers=(*EXAONE4.leftovers, r"(.*\.)?mtp\..*"),
    ignored=frozenset({"topk_method", "num_nextn_predict_layers", "mtp_share_layers"}),
    ids={"bos_token_id": 1, "eos_token_id": 53, "pad_token_id": 0},
)
