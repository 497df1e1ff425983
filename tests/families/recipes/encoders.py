"""Encoders in BERT's line and their heads."""

from __future__ import annotations

from tests.families.recipes.base import Recipe

RECIPES: dict[str, Recipe] = {}
