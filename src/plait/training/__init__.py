"""Training: a recipe, a loop, and what keeps a run's work."""
