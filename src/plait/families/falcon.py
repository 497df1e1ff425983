"""Falcon: attention and FFN side by side behind one norm (7B, 11B) or two (40B), few keys and values.

The rw models have a penalty by distance instead of a rotation, and their blocks one after the other.
"""

from plait.families.binding import Either, via
from plait.families.falcon_layouts import HEADS, OLD, PARALLEL
from plait.families.falcon_positions import POSITIONS
from plait.families.family import Family
from plait.families.operations import ACTIVATION, GROUP
from plait.families.settings import key

FALCON = Family(
    name="falcon",
    model_types=("falcon", "RefinedWebModel", OLD),
    classes=("FalconForCausalLM", "FalconModel"),
    settings={
        "vocab_size": key("vocab_size", 65024),
        "d_model": key("hidden_size", 4544),
        "n_decoder_layers": key("num_hidden_layers", 32),
        "n_heads": key("num_attention_heads", 71),
        "n_kv_heads": HEADS,
        "d_ff": key("ffn_hidden_size", lambda fields: 4 * fields["d_model"]),
        "norm_eps": key("layer_norm_epsilon", 1e-5),
        "parallel": PARALLEL,
        **POSITIONS,
        "qkv_bias": key("bias", False),
        "output_bias": key("bias", False),
        "ffn_bias": key("bias", False),
        "activation": key("activation", "gelu", ACTIVATION),
    },
    weights={
        "embedding.tokens": "word_embeddings",
        "decoder.layers.{i}.attention_norms.before": Either(
            "parallel", "h.{i}.ln_attn", "h.{i}.input_layernorm", value="separate"
        ),
        "decoder.layers.{i}.attention.{query,key,value}": via("h.{i}.self_attention.query_key_value", GROUP),
        "decoder.layers.{i}.attention.output": "h.{i}.self_attention.dense",
        "decoder.layers.{i}.ffn_norms.before": Either(
            "parallel", "h.{i}.ln_mlp", "h.{i}.post_attention_layernorm", value="separate"
        ),
        "decoder.layers.{i}.ffn.{up,down}": "h.{i}.mlp.{dense_h_to_4h,dense_4h_to_h}",
        "decoder.norm": "ln_f",
        "head.output": "lm_head",
    },
    tied=True,
    prefix="transformer.",
    leftovers=(r"h\.\d+\.self_attention\.(rotary_emb|maybe_rotary)\.inv_freq",),
    synonyms={
        "n_embed": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_head_kv": "num_kv_heads",
    },
    ignored=frozenset({"hidden_dropout", "ff_factor"}),
    ids={"bos_token_id": 11, "eos_token_id": 11},
)
