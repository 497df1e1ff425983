"""Falcon's positions: a rotation, or in the rw models a penalty by distance."""

from dataclasses import replace

from plait.architecture import Alibi, Rope
from plait.families.operations import chosen
from plait.families.rope import rotary
from plait.families.settings import Reading, derived, key

ROTARY = rotary(2048)


def _rope(reading: Reading) -> Rope | None:
    return ROTARY["rope"].load(reading) if reading["position"] == "rope" else None


POSITIONS = {
    **ROTARY,
    "position": key("alibi", False, chosen("alibi", "rope")),
    "rope": replace(ROTARY["rope"], load=_rope),
    "alibi": derived(lambda fields: Alibi(scaled=True, rounded=True) if fields["position"] == "alibi" else None),
}
