"""Which of its layouts a Falcon config means: heads for keys and values, and the norms around its blocks.

The newer layout (40B and 11B) groups heads and says how many norms there are; the older one has one key or all of them.
"""

from collections.abc import Mapping
from typing import Any

from plait.families.operations import Fields
from plait.families.settings import Reading, Setting

OLD = "RefinedWeb"


def _is_new(config: Mapping[str, Any]) -> bool:
    """The layout of 40B; before there was a key for it, RefinedWeb was that of 40B where it grouped its heads."""
    said = config.get("new_decoder_architecture")
    return config.get("model_type") == OLD and bool(config.get("num_kv_heads")) if said is None else said


def _switch(config: Mapping[str, Any], name: str) -> bool:
    """A setting of the older layout: on where it is not said, but in RefinedWeb's own class."""
    said = config.get(name)
    return config.get("model_type") != OLD if said is None else said


def _heads(reading: Reading) -> int:
    """Those for keys: ``num_kv_heads`` counts in the newer layout alone, ``multi_query`` in the older."""
    config, n_heads = reading.config, reading["n_heads"]
    if _is_new(config):
        return config.get("num_kv_heads") or n_heads
    return 1 if _switch(config, "multi_query") else n_heads


def _parallel(reading: Reading) -> str:
    """The newer layout is always parallel, with two norms unless it says one."""
    config = reading.config
    if _is_new(config):
        return "shared" if config.get("num_ln_in_parallel_attn") == 1 else "separate"
    return "shared" if _switch(config, "parallel_attn") else "none"


def _spell(_: Any, fields: Fields) -> dict[str, Any]:
    parallel, heads, all_heads = fields["parallel"], fields["n_kv_heads"], fields["n_heads"]
    new = parallel == "separate" or parallel == "shared" and heads not in (1, all_heads)
    return {
        "new_decoder_architecture": new,
        "parallel_attn": parallel != "none",
        "num_ln_in_parallel_attn": (2 if parallel == "separate" else 1) if new else None,
        "multi_query": heads == 1,
        "num_kv_heads": heads if new else all_heads,
    }


HEADS = Setting(("new_decoder_architecture", "num_kv_heads", "multi_query"), _heads, _spell)
PARALLEL = Setting(("new_decoder_architecture", "parallel_attn", "num_ln_in_parallel_attn"), _parallel, _spell)
