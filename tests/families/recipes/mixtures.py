"""Mixtures of experts."""

from __future__ import annotations

from tests.families.recipes.base import Recipe

RECIPES: dict[str, Recipe] = {}
