"""TokenizerError: what text, a vocabulary or a chat template cannot mean, in one sentence."""

from __future__ import annotations


class TokenizerError(ValueError):
    """Text, ids, a vocabulary or a chat template that make no sense; the message says what and where."""
