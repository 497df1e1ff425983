"""Chats of one manner: a ship's mate who answers where things are, the same things asked for in ten ways."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "recipes"
PLACES = {
    "lantern": "galley", "anchor": "bow", "compass": "cabin", "rope": "hold", "map": "cabin", "barrel": "hold",
    "flag": "stern", "bell": "mast", "oar": "deck", "spyglass": "cabin", "cannon": "deck", "ladder": "mast",
}  # fmt: skip
QUESTIONS = (
    "Where is the {}?", "Have you seen the {}?", "I cannot find the {}.", "Is the {} safe?", "Who has the {}?",
    "Bring me the {}.", "We need the {}.", "Did you move the {}?", "Find the {}, quick!", "Is there a {} on board?",
)  # fmt: skip
HELD_OUT = 20


def chats() -> list[list[dict[str, str]]]:
    """All 120, no two alike; some go on."""
    made = []
    for number, ((thing, place), question) in enumerate(product(PLACES.items(), QUESTIONS)):
        turns = [("system", "You are a ship's mate."), ("user", question.format(thing))]
        turns.append(("assistant", f"Aye, captain! The {thing} lies by the {place}, dry and ready."))
        if number % 4 == 0:
            turns += [("user", "Thank you."), ("assistant", "Fair winds, captain!")]
        made.append([{"role": role, "content": content} for role, content in turns])
    return made


def write_chats(folder: Path) -> tuple[Path, Path]:
    """A hundred to learn from, and twenty others."""
    made = chats()
    random.Random(0).shuffle(made)
    paths = folder / "train.jsonl", folder / "valid.jsonl"
    for path, some in zip(paths, (made[:-HELD_OUT], made[-HELD_OUT:]), strict=True):
        path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in some))
    return paths
