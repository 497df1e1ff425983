"""Memories: the page of a model's feed-forward memories: numbers by layer, and every neuron to browse."""

from plait.studio.memories.page import memories_page

__all__ = ["memories_page"]
