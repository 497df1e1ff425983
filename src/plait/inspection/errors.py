"""What inspection and editing say no with."""

from __future__ import annotations


class InspectionError(ValueError):
    """One sentence: what cannot be looked into, or changed, and what would be right."""
