"""T5's bias by distance: how many buckets it has, and how far they reach."""

from plait.architecture import RelativeBias
from plait.families.settings import Setting, key, record


def distance_bias(per_layer: bool = False) -> Setting:
    """``relative_bias``; ``per_layer``: whether every layer has a table of its own."""
    return record(
        RelativeBias,
        buckets=key("relative_attention_num_buckets", 32),
        max_distance=key("relative_attention_max_distance", 128),
        per_layer=per_layer,
    )
