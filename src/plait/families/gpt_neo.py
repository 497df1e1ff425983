"""GPT-Neo: GPT-2 with scores without scale and, in every other layer, a window."""

from collections.abc import Mapping
from typing import Any

from plait.architecture import LayerType
from plait.families.errors import FamilyError
from plait.families.gpt2 import GPT2
from plait.families.operations import Fields
from plait.families.settings import Reading, Setting, key

USUAL = [[["global", "local"], 12]]


def _names(config: Mapping[str, Any]) -> list[str]:
    """A name for each layer: from the list the class writes, or from patterns and how often each is repeated."""
    patterns = config.get("attention_types") or USUAL
    return config.get("attention_layers") or [name for names, times in patterns for name in list(names) * times]


def _types(reading: Reading) -> tuple[LayerType, ...]:
    names, n_layers = _names(reading.config), reading["n_decoder_layers"]
    for name in names:
        if name not in ("global", "local"):
            raise FamilyError(f"attention_types: plait has no {name!r}; it has 'global' and 'local'.")
    if len(names) != n_layers:
        raise FamilyError(f"attention_types: {len(names)} types for {n_layers} layers; there must be one for each.")
    local = LayerType(window=reading.config.get("window_size") or 256)
    return tuple(local if name == "local" else LayerType() for name in names)


def _spell(types: tuple[LayerType, ...], fields: Fields) -> dict[str, Any]:
    tile, n_layers = types or (LayerType(),), fields["n_decoder_layers"]
    names = ["global" if kind.window is None else "local" for kind in tile]
    each = [names[i % len(names)] for i in range(n_layers)]
    patterns = [[each, 1]] if n_layers % len(names) else [[names, n_layers // len(names)]]
    widths = sorted({kind.window for kind in tile if kind.window is not None})
    if len(widths) > 1:
        raise FamilyError(f"layer_types.window: this family has one width; here there are {widths}.")
    return {"attention_types": patterns, "attention_layers": each, "window_size": widths[0] if widths else 256}


GPT_NEO = GPT2.relative(
    "gpt_neo",
    classes=("GPTNeoForCausalLM", "GPTNeoModel"),
    settings={
        "d_model": key("hidden_size", 2048),
        "n_decoder_layers": key("num_layers", 24),
        "n_heads": key("num_heads", 16),
        "d_ff": key("intermediate_size", lambda fields: 4 * fields["d_model"]),
        "max_length": key("max_position_embeddings", 2048),
        "layer_types": Setting(("attention_types", "attention_layers", "window_size"), _types, _spell),
        "qkv_bias": False,
        "attention_scale": 1.0,
    },
    weights={
        "decoder.layers.{i}.attention.{query,key,value}": "h.{i}.attn.attention.{q,k,v}_proj",
        "decoder.layers.{i}.attention.output": "h.{i}.attn.attention.out_proj",
        "decoder.layers.{i}.ffn.{up,down}": "h.{i}.mlp.{c_fc,c_proj}",
    },
    leftovers=(r"h\.\d+\.attn\.attention\.(bias|masked_bias)",),
    synonyms={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    ignored=frozenset({"resid_dropout", "embed_dropout"}),
)
