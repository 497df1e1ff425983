"""MiniMax-M2: Mixtral with experts picked by a sigmoid and a bias, whole queries and keys normed, half heads turned."""

from plait.families.experts import mixture
from plait.families.mixtral import MIXTRAL, N_EXPERTS, PER_TOKEN
from plait.families.rope import rotary
from plait.families.settings import insisting, key

MINIMAX_M2 = MIXTRAL.relative(
    "minimax_m2",
    classes=("MiniMaxM2ForCausalLM", "MiniMaxM2Model"),
    settings={
        **rotary(196608, theta=5e6, partial_by_default=True, dim_key="rotary_dim"),
        "vocab_size": key("vocab_size", 200064),
        "d_model": key("hidden_size", 3072),
        "n_decoder_layers": key("num_hidden_layers", 62),
        "n_heads": key("num_attention_heads", 48),
        "n_kv_heads": key("num_key_value_heads", 8),
        "d_head": key("head_dim", 128),
        "d_ff": key("intermediate_size", 1536),
        "norm_eps": key("rms_norm_eps", 1e-6),
        "qk_norm": "full",
        "layer_types": (),
        "experts": insisting(
            mixture(
                key(N_EXPERTS, 256),
                key(PER_TOKEN, 8),
                key("intermediate_size", 1536),
                router="sigmoid",
                selection_bias=True,
                renormalize=True,
            ),
            scoring_func="sigmoid",
            use_routing_bias=True,
            use_qk_norm=True,
            qk_norm_type="per_layer",
            shared_intermediate_size=0,
            attn_type_list=1,
            layernorm_full_attention_beta=1.0,
            layernorm_linear_attention_beta=1.0,
            layernorm_mlp_beta=1.0,
        ),
    },
    weights={
        "decoder.layers.{i}.ffn.router.score_bias": "layers.{i}.block_sparse_moe.e_score_correction_bias",
        "decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{q,k}_norm",
    },
    together={
        **MIXTRAL.together,
        "decoder.layers.{i}.ffn.router.score_bias": "layers.{i}.mlp.e_score_correction_bias",
    },
    ignored=frozenset(
        "mlp_intermediate_size shared_moe_mode use_mtp num_mtp_modules mtp_transformer_layers max_model_len".split()
    ),
    ids={"bos_token_id": 200034, "eos_token_id": 200020},
    tokenizer=None,
)
