"""What each parameter is: the part of the model it is counted in, and whether it is the matrix of a product."""

from __future__ import annotations

from typing import Literal, cast

Part = Literal["embedding", "attention", "cross", "ffn", "head", "norms", "biases"]
PARTS: tuple[Part, ...] = ("embedding", "attention", "cross", "ffn", "head", "norms", "biases")


def part_of(name: str) -> Part:
    """The one part a parameter is counted in: ``norms`` with their biases, ``biases`` all other vectors."""
    *path, leaf = name.split(".")
    if any("norm" in word for word in path):
        return "norms"
    if leaf != "weight":  # bias, score_bias, sinks
        return "biases"
    return cast(Part, path[3] if "layers" in path else path[0].removeprefix("source_"))


def multiplies(name: str) -> bool:
    """Whether a parameter is the matrix of a product: neither a vector nor a table that rows are picked from."""
    picked = name.endswith((".tokens.weight", ".positions.weight", ".types.weight", ".relative_bias.weight"))
    return part_of(name) not in ("norms", "biases") and not picked


def chooses(name: str) -> bool:
    """Whether a matrix says which experts are taken, or how far: it is small, and stays in floats."""
    return name.endswith((".router.weight", ".shared_gate.weight"))
