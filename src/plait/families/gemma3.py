"""Gemma 3: Gemma 2 without a cap on its scores, with norms on queries and keys; windowed layers turn faster."""

from plait.families.gemma import GEMMA2
from plait.families.rope import RopeSettings, rotary
from plait.families.settings import key
from plait.families.windows import listed_windows

LOCAL = RopeSettings(theta_key="rope_local_base_freq", layer_type="sliding_attention", scaled=False, max_length=131072)

GEMMA3 = GEMMA2.relative(
    "gemma3_text",
    classes=("Gemma3ForCausalLM", "Gemma3TextModel"),
    settings={
        **rotary(131072, theta=1e6, layer_type="full_attention"),
        "vocab_size": key("vocab_size", 262208),
        "qk_norm": "head",
        "attention_softcap": None,
        "logit_softcap": key("final_logit_softcapping", None, nullable=True),
        "layer_types": listed_windows(
            4096,
            lambda layer, config: (layer + 1) % config.get("sliding_window_pattern", 6) != 0,
            reads=("sliding_window_pattern",),
            local=LOCAL,
        ),
    },
    weights={"decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{q,k}_norm"},
    # attn_logit_softcapping is read by the config's class and used by nothing
    ignored=frozenset({"hidden_act", "attn_logit_softcapping", "_sliding_window_pattern"}),
)
