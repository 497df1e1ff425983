"""Decoders with absolute positions, ALiBi or early rotations, from GPT-1 to Falcon and Phi."""

from __future__ import annotations

from tests.families.recipes.base import Recipe

RECIPES: dict[str, Recipe] = {}
