"""Decoders in Llama's line, from Phi-3 and OLMo to Cohere and GLM."""

from __future__ import annotations

from tests.families.recipes.base import Recipe

RECIPES: dict[str, Recipe] = {}
