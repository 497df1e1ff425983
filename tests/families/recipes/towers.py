"""Encoder-decoders: BART's and T5's lines."""

from __future__ import annotations

from tests.families.recipes.base import Recipe

RECIPES: dict[str, Recipe] = {}
