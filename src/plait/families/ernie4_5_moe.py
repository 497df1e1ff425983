"""ERNIE 4.5 with experts in some layers, and two beside them that every token takes."""

from plait.families.binding import via
from plait.families.ernie4_5 import ERNIE4_5
from plait.families.experts import EACH_ALONE, TOGETHER, mixture, times, within
from plait.families.operations import ROW
from plait.families.settings import insisting, key

WIDTH = key("moe_intermediate_size", 1536)

ERNIE4_5_MOE = ERNIE4_5.relative(
    "ernie4_5_moe",
    classes=("Ernie4_5_MoeForCausalLM", "Ernie4_5_MoeModel"),
    settings={
        "d_model": key("hidden_size", 2560),
        "n_decoder_layers": key("num_hidden_layers", 28),
        "n_heads": key("num_attention_heads", 20),
        "n_kv_heads": key("num_key_value_heads", 4),
        "d_head": key("head_dim", None),
        "d_ff": key("intermediate_size", 12288),
        "qkv_bias": False,  # with biases the experts would have none, and everything else would
        "output_bias": False,
        "ffn_bias": False,
        "layer_types": within(1),
        "experts": insisting(
            mixture(
                key("moe_num_experts", 64),
                key("moe_k", 6),
                WIDTH,
                selection_bias=True,
                renormalize=True,
                d_shared=times("moe_num_shared_experts", WIDTH, 2),
            ),
            use_bias=False,
        ),
    },
    weights={
        **EACH_ALONE,
        "decoder.layers.{i}.ffn.router.score_bias": via("layers.{i}.mlp.moe_statics.e_score_correction_bias", ROW),
        "decoder.layers.{i}.ffn.shared.{gate,up,down}": "layers.{i}.mlp.shared_experts.{gate,up,down}_proj",
    },
    together={
        **TOGETHER,
        "decoder.layers.{i}.ffn.router.score_bias": via("layers.{i}.mlp.gate.moe_statics.e_score_correction_bias", ROW),
    },
    leftovers=(*ERNIE4_5.leftovers, r"mtp_\w+\..+"),
    synonyms={"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
    ignored=ERNIE4_5.ignored
    | {"moe_norm_min", "moe_gate", "moe_capacity", "moe_use_aux_free", "num_nextn_predict_layers"},
)
