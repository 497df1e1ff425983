"""Command R: attention and FFN side by side after one LayerNorm without bias, neighbouring dimensions turned together.

Command R7B and A (cohere2): most layers see only a window, and those that see all have no rotation.
"""

from plait.families.llama import LLAMA
from plait.families.operations import chosen
from plait.families.rope import rotary
from plait.families.settings import insisting, key
from plait.families.windows import listed_windows

COHERE = LLAMA.relative(
    "cohere",
    classes=("CohereForCausalLM", "CohereModel"),
    settings={
        **rotary(8192, theta=5e5, interleaved=True),
        "vocab_size": key("vocab_size", 256000),
        "d_model": key("hidden_size", 8192),
        "n_decoder_layers": key("num_hidden_layers", 40),
        "n_heads": key("num_attention_heads", 64),
        "d_ff": key("intermediate_size", 22528),
        "norm": "layernorm",
        "norm_bias": False,
        "norm_eps": key("layer_norm_eps", 1e-5),
        "parallel": "shared",
        "qk_norm": key("use_qk_norm", False, chosen("per_head", None)),
        "ffn_bias": False,
        "logit_scale": key("logit_scale", 0.0625),
    },
    weights={
        "decoder.layers.{i}.ffn_norms.before": None,
        "decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{q,k}_norm",
    },
    tied=True,
    ignored=frozenset({"model_max_length"}),
    ids={"pad_token_id": 0, "bos_token_id": 5, "eos_token_id": 255001},
    tokenizer=None,
)

COHERE2 = COHERE.relative(
    "cohere2",
    classes=("Cohere2ForCausalLM", "Cohere2Model"),
    settings={
        **rotary(8192, interleaved=True),
        "d_head": None,
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
    ignored=frozenset(
        "head_dim _sliding_window_pattern layer_switch use_embedding_sharing use_parallel_embedding".split()
    ),
)
