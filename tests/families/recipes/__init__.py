"""Every recipe there is, by name: see ``base.py`` for what one is."""

from tests.families.recipes import classic, encoders, first, llamas, mixtures, towers
from tests.families.recipes.base import Recipe

RECIPES: dict[str, Recipe] = {
    **first.RECIPES,
    **classic.RECIPES,
    **llamas.RECIPES,
    **encoders.RECIPES,
    **towers.RECIPES,
    **mixtures.RECIPES,
}
