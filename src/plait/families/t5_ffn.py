"""T5's FFN: one word for its activation and its gate, and its place in a block.

Version 5 writes beside that word what it made of it, and that counts.
"""

from __future__ import annotations

from typing import Any

from plait.families.binding import Either, Rule
from plait.families.operations import Fields, preferring
from plait.families.settings import Reading, Setting

WORDS = preferring("gelu_new")


def _word(reading: Reading, usual: str) -> str:
    return reading.config.get("feed_forward_proj") or usual


def feed_forward(usual: str) -> dict[str, Setting]:
    """``activation`` and ``gated``; ``usual`` is the class's default: ``"relu"``, ``"gated-gelu"``."""

    def activation(reading: Reading) -> str:
        word = _word(reading, usual)
        meant = "gelu_new" if word == "gated-gelu" else word.split("-")[-1]
        return WORDS.load(reading.config.get("dense_act_fn") or meant, reading)

    def is_gated(reading: Reading) -> bool:
        said = reading.config.get("is_gated_act")
        return _word(reading, usual).startswith("gated-") if said is None else said

    keys = ("feed_forward_proj", "dense_act_fn", "is_gated_act")
    return {"activation": Setting(keys, activation, _spell), "gated": Setting(keys, is_gated, _spell)}


def _spell(_: Any, fields: Fields) -> dict[str, Any]:
    word = WORDS.save(fields["activation"], fields)
    usual = "gelu" if fields["gated"] and word == "gelu_new" else word
    proj = f"gated-{usual}" if fields["gated"] else usual
    return {"feed_forward_proj": proj, "dense_act_fn": word, "is_gated_act": fields["gated"]}


def ffn(tower: str, place: int) -> dict[str, Rule]:
    """The names of a tower's FFN, which is layer ``place`` of its block."""
    ours, theirs = f"{tower}.layers.{{i}}.ffn", f"{tower}.block.{{i}}.layer.{place}."
    return {
        f"{ours}.gate": f"{theirs}DenseReluDense.wi_0",
        f"{ours}.up": Either("gated", f"{theirs}DenseReluDense.wi_1", f"{theirs}DenseReluDense.wi"),
        f"{ours}.down": f"{theirs}DenseReluDense.wo",
        f"{ours}_norms.before": f"{theirs}layer_norm",
    }
