"""What ModernBERT and its decoder share: all but how queries, keys and values lie, and the heads."""

from plait.families.binding import via
from plait.families.operations import ACTIVATION, CAT, Conversion
from plait.families.rope import RopeSettings, rotary
from plait.families.settings import key
from plait.families.windows import listed_windows

LOCAL = RopeSettings(theta_key="local_rope_theta", layer_type="sliding_attention", max_length=8192)
HALF = Conversion(lambda value, _: value // 2, lambda value, _: 2 * value)  # a window's two sides
TRANSFORM = key("classifier_activation", "gelu", ACTIVATION)

SETTINGS = {
    **rotary(8192, theta=160000.0, theta_key="global_rope_theta", layer_type="full_attention"),
    "vocab_size": key("vocab_size", 50368),
    "d_model": key("hidden_size", 768),
    "n_heads": key("num_attention_heads", 12),
    "d_ff": key("intermediate_size", 1152),
    "norm_eps": key("norm_eps", 1e-5),
    "norm_bias": key("norm_bias", False),
    "first_norm": False,
    "layer_types": listed_windows(
        128,
        lambda layer, config: layer % config.get("global_attn_every_n_layers", 3) != 0,
        reads=("global_attn_every_n_layers",),
        local=LOCAL,
        name="local_attention",
        tokens=HALF,
    ),
    "qkv_bias": key("attention_bias", False),
    "output_bias": key("attention_bias", False),
    "activation": key("hidden_activation", "gelu", ACTIVATION),
    "gated": True,
    "ffn_bias": key("mlp_bias", False),
    "embedding_norm": True,
    "head_transform": TRANSFORM,
    "head_bias": key("classifier_bias", False),
    "logit_bias": key("decoder_bias", True),
}
WEIGHTS = {
    "embedding.{tokens,norm}": "embeddings.{tok_embeddings,norm}",
    "{tower}.layers.{i}.attention.output": "layers.{i}.attn.Wo",
    "{tower}.layers.{i}.attention_norms.before": "layers.{i}.attn_norm",
    "{tower}.layers.{i}.ffn.{gate,up}": via("layers.{i}.mlp.Wi", CAT),
    "{tower}.layers.{i}.ffn.down": "layers.{i}.mlp.Wo",
    "{tower}.layers.{i}.ffn_norms.before": "layers.{i}.mlp_norm",
    "{tower}.norm": "final_norm",
}
