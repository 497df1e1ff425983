"""EXAONE 4: Llama with norms after blocks and on queries and keys; where some layers have a window, only those turn."""

from collections.abc import Mapping
from typing import Any

from plait.families.llama import LLAMA, NO_BIAS
from plait.families.settings import key
from plait.families.windows import listed_windows


def _slides(layer: int, config: Mapping[str, Any]) -> bool:
    """``sliding_window_pattern`` is a period whose last layer sees all, or its letters, such as LLLG."""
    pattern = config.get("sliding_window_pattern", 4)
    if pattern and isinstance(pattern, str):
        return pattern[layer % len(pattern)] == "L" and layer != config.get("num_hidden_layers", 32) - 1
    return bool(pattern) and (layer + 1) % pattern != 0


EXAONE4 = LLAMA.relative(
    "exaone4",
    classes=("Exaone4ForCausalLM", "Exaone4Model"),
    settings={
        **NO_BIAS,
        "vocab_size": key("vocab_size", 102400),
        "n_kv_heads": key("num_key_value_heads", 32),
        "d_ff": key("intermediate_size", 16384),
        "norm_eps": key("rms_norm_eps", 1e-5),
        "norm_placement": "branch",
        "qk_norm": "head",
        "layer_types": listed_windows(
            4096,
            _slides,
            reads=("sliding_window_pattern",),
            turns=lambda _, slides, config: slides or config.get("sliding_window", 4096) is None,
        ),
    },
    weights={
        "decoder.layers.{i}.attention_norms.before": None,
        "decoder.layers.{i}.attention_norms.after": "layers.{i}.post_attention_layernorm",
        "decoder.layers.{i}.ffn_norms.before": None,
        "decoder.layers.{i}.ffn_norms.after": "layers.{i}.post_feedforward_layernorm",
        "decoder.layers.{i}.attention.{query_norm,key_norm}": "layers.{i}.self_attn.{q,k}_norm",
    },
    ids={"bos_token_id": 0, "eos_token_id": 2},
    tokenizer=None,
)
