"""GLM-4.5: Llama with half of each head turned, and experts behind some dense layers."""

from plait.families.experts import EACH_ALONE, TOGETHER, after_first, grouped, times
from plait.families.llama import LLAMA
from plait.families.operations import chosen
from plait.families.rope import rotary
from plait.families.settings import key

WIDTH = key("moe_intermediate_size", 1408)
SHARED = {
    **EACH_ALONE,
    "decoder.layers.{i}.ffn.router.score_bias": "layers.{i}.mlp.gate.e_score_correction_bias",
    "decoder.layers.{i}.ffn.shared.{gate,up,down}": "layers.{i}.mlp.shared_experts.{gate,up,down}_proj",
}

GLM4_MOE = LLAMA.relative(
    "glm4_moe",
    classes=("Glm4MoeForCausalLM", "Glm4MoeModel"),
    settings={
        **rotary(131072, partial=0.5, partial_by_default=True),
        "vocab_size": key("vocab_size", 151552),
        "n_decoder_layers": key("num_hidden_layers", 46),
        "n_heads": key("num_attention_heads", 96),
        "n_kv_heads": key("num_key_value_heads", 8),
        "d_ff": key("intermediate_size", 10944),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "output_bias": False,
        "ffn_bias": False,
        "qk_norm": key("use_qk_norm", False, chosen("head", None)),
        "layer_types": after_first(1),
        "experts": grouped(
            n_experts=key("n_routed_experts", 128),
            per_token=key("num_experts_per_tok", 8),
            width=WIDTH,
            renormalize=key("norm_topk_prob", True),
            d_shared=times("n_shared_experts", WIDTH, 1),
        ),
    },
    weights={
        **SHARED,
        "decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{q,k}_norm",
    },
    together=TOGETHER,
    further="eh_proj.weight",
    synonyms={"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"},
    ignored=frozenset({"num_nextn_predict_layers"}),
    ids={},
    tokenizer=None,
)
