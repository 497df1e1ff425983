"""The one error of generation: a request that cannot be carried out, and what its sentences call a model."""

from __future__ import annotations

from plait.architecture import Architecture, Classification


class GenerationError(ValueError):
    """A prompt, limit or setting that makes no sense; the message says which, its value and what would be right."""


def in_words(architecture: Architecture) -> str:
    """A model by its towers and its head."""
    kind, head = architecture.kind, architecture.head
    if isinstance(head, Classification):
        return f"{kind} with a head that classifies (plait.classify runs it)"
    return f"{kind} with head {head!r}" if head else f"{kind} without a head"
