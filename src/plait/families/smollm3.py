"""SmolLM 3: Llama whose every fourth layer has no rotation."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plait.architecture import LayerType
from plait.families.errors import FamilyError
from plait.families.llama import LLAMA
from plait.families.operations import Fields
from plait.families.rope import rotary
from plait.families.settings import key
from plait.families.windows import listed_windows


def _turns(layer: int, config: Mapping[str, Any]) -> bool:
    """``no_rope_layers`` has a 1 for a layer that turns, in spite of its name."""
    listed = config.get("no_rope_layers")
    if listed is None:
        return (layer + 1) % (config.get("no_rope_layer_interval") or 4) != 0
    if layer >= len(listed):
        raise FamilyError(f"no_rope_layers: {len(listed)} values, none for layer {layer}; there must be one for each.")
    return bool(listed[layer])


WINDOWS = listed_windows(
    None,
    lambda layer, config: not _turns(layer, config),
    reads=("no_rope_layers", "no_rope_layer_interval"),
    switch="use_sliding_window",
    turns=lambda layer, _, config: _turns(layer, config),
)


def _spell(types: tuple[LayerType, ...], fields: Fields) -> dict[str, Any]:
    tile = types or (LayerType(),)
    turning = [int(tile[i % len(tile)].rope is not None) for i in range(fields["n_decoder_layers"])]
    return {**WINDOWS.save(types, fields), "no_rope_layers": turning}


SMOLLM3 = LLAMA.relative(
    "smollm3",
    classes=("SmolLM3ForCausalLM", "SmolLM3Model"),
    settings={
        **rotary(32768, theta=2e6),
        "vocab_size": key("vocab_size", 128256),
        "d_model": key("hidden_size", 2048),
        "n_decoder_layers": key("num_hidden_layers", 36),
        "n_heads": key("num_attention_heads", 16),
        "n_kv_heads": key("num_key_value_heads", 4, nullable=True),
        "layer_types": replace(WINDOWS, save=_spell),
    },
    tied=True,
    ignored=frozenset({"max_window_layers"}),
    ids={"pad_token_id": 128004, "bos_token_id": 128000, "eos_token_id": 128001},
    tokenizer=None,
)
