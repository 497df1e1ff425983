"""Hunyuan with experts in every layer, and one beside them, as wide as the rest, that every token takes."""

from plait.families.experts import ALIKE, EACH_ALONE, TOGETHER, mixture
from plait.families.hunyuan import HUNYUAN_DENSE
from plait.families.settings import insisting, key

WIDTH = key("intermediate_size", 11008)

HUNYUAN_MOE = HUNYUAN_DENSE.relative(
    "hunyuan_v1_moe",
    classes=("HunYuanMoEV1ForCausalLM", "HunYuanMoEV1Model"),
    settings={
        "experts": insisting(
            mixture(key("num_experts", 1, ALIKE), key("moe_topk", 1, ALIKE), WIDTH, renormalize=True, d_shared=WIDTH),
            use_mixed_mlp_moe=True,
            moe_layer_num_skipped=0,
            num_shared_expert=1,
        ),
    },
    weights={
        **EACH_ALONE,
        "decoder.layers.{i}.ffn.router": "layers.{i}.mlp.gate.wg",
        "decoder.layers.{i}.ffn.shared.{gate,up,down}": "layers.{i}.mlp.shared_mlp.{gate,up,down}_proj",
    },
    together=TOGETHER,
    synonyms={"num_local_experts": "num_experts", "num_experts_per_tok": "moe_topk"},
    ignored=HUNYUAN_DENSE.ignored | {"moe_intermediate_size", "moe_drop_tokens", "moe_random_routing_dropped_token"},
)
