"""Chats that all begin with one system message are told apart by what is asked after it."""

from __future__ import annotations

import json
from pathlib import Path

from plait.training.recipe import read_recipe
from plait.training.resolve import decide, resolve
from tests.training.standing_in import ENGLISH, sentences, write_decoder

RECIPE = Path(__file__).parents[2] / "recipes/smollm2-lora.toml"


def test_chats_of_one_system_message_are_on_both_sides(tmp_path: Path) -> None:
    asked = sentences(ENGLISH, 100)
    lines = [
        json.dumps([{"role": role, "content": text} for role, text in zip(roles, ("be kind", one, other), strict=True)])
        for roles in [("system", "user", "assistant")]
        for one in asked
        for other in ("a red dog", "a big cat")  # equal questions stay together
    ]
    (tmp_path / "chats.jsonl").write_text("\n".join(lines))
    options = ["--data.train", str(tmp_path / "chats.jsonl"), "--data.valid_fraction", "0.2"]
    options += ["--model.from", str(write_decoder(tmp_path)), "--data.cache", str(tmp_path)]
    run = resolve(decide(read_recipe(RECIPE, options)))
    assert run.valid is not None
    train, valid = (int(stream.facts()["samples"]) for stream in (run.train, run.valid))
    assert train + valid == 200 and 20 <= valid <= 60 and valid % 2 == 0
