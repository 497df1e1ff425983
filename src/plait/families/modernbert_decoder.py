"""ModernBERT with a causal mask; queries, keys and values in matrices of their own."""

from __future__ import annotations

from typing import Any

from plait.architecture import LayerType
from plait.families.family import Family
from plait.families.modernbert import MODERNBERT
from plait.families.modernbert_stack import SETTINGS, WEIGHTS
from plait.families.operations import Fields
from plait.families.settings import Reading, Setting, key

WINDOWS = SETTINGS["layer_types"]


def _windows(reading: Reading) -> tuple[LayerType, ...]:
    """A ``sliding_window``, which newer files have beside ``local_attention``, is what counts."""
    width = reading.config.get("sliding_window")
    config = reading.config if width is None else {**reading.config, "local_attention": 2 * width}
    return WINDOWS.load(Reading(config, reading.rules, reading.spelling, reading.equal))


def _spell(types: tuple[LayerType, ...], fields: Fields) -> dict[str, Any]:
    said = WINDOWS.save(types, fields)
    return {**said, "sliding_window": said["local_attention"] // 2} if said.get("local_attention") else said


MODERNBERT_DECODER = Family(
    name="modernbert-decoder",
    model_types=("modernbert-decoder",),
    classes=("ModernBertDecoderForCausalLM", "ModernBertDecoderModel"),
    settings={
        **SETTINGS,
        "n_decoder_layers": key("num_hidden_layers", 22),
        "layer_types": Setting((*WINDOWS.keys, "sliding_window"), _windows, _spell),
    },
    weights={
        **WEIGHTS,
        "decoder.layers.{i}.attention.{query,key,value}": "layers.{i}.attn.{q,k,v}_proj",
        "head.{dense,norm,output}": "{lm_head.dense,lm_head.norm,decoder}",
    },
    tied=True,
    prefix="model.",
    ignored=MODERNBERT.ignored,
    ids=MODERNBERT.ids,
    tokenizer=None,
)
