"""ChatTemplate: a conversation rendered as text by the model's own Jinja template, which nobody need trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plait.text.sandbox import Limits, render

__all__ = ["ChatTemplate", "Limits"]


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """A Jinja template in Hugging Face's dialect, with the special tokens it may name.

    ``source`` is the template; ``tool_use`` the one to use instead when there are ``tools``; ``tokens`` the strings of
    ``bos_token`` and its like; ``limits`` what one rendering may take.
    """

    source: str
    tool_use: str | None = None
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = Limits()

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The text of a conversation; raises TokenizerError where the template fails, or exceeds its limits."""
        source = self.tool_use if self.tool_use is not None and variables.get("tools") else self.source
        known: dict[str, Any] = {"tools": None, "documents": None, **self.tokens}
        given = {"messages": messages, "add_generation_prompt": add_generation_prompt, **variables}
        return render(source, known | given, self.limits)

    def controls(self, token: str) -> bool:
        """Whether a token that is not marked special is control here: the template writes it, and it is no word."""
        written = token in self.source or token in (self.tool_use or "")
        return written and bool(token.strip()) and not token.isalnum()
