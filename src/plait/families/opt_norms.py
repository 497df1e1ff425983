"""OPT's norms, by its switches: before or after a block, with weights or without, one behind the last layer or none."""

from typing import Any

from plait.families.operations import Fields, chosen
from plait.families.settings import Reading, Setting, key


def _final_norm(reading: Reading) -> bool:
    return reading["norm_placement"] == "pre" and not reading.config.get("_remove_final_layer_norm")


def _spell_final_norm(value: bool, fields: Fields) -> dict[str, Any]:
    return {"_remove_final_layer_norm": fields["norm_placement"] == "pre" and not value}


NORMS = {
    "norm_eps": 1e-5,
    "norm_placement": key("do_layer_norm_before", True, chosen("pre", "post")),
    "norm_weight": key("layer_norm_elementwise_affine", True, chosen("plain", "none")),
    "final_norm": Setting(("_remove_final_layer_norm",), _final_norm, _spell_final_norm),
}
