"""Stop strings: text is let through as soon as no stop string can begin in it, and nothing of a stop ever is."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """A filter on streamed text that ends at the first stop string to be completed.

    What comes out does not depend on how the text was cut: of several stops, the one that ends first counts, and of
    those that end together the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = tuple(stops)
        self.held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """Take more text; return what can be shown by now."""
        if self.found is not None:
            return ""
        if not self.stops:
            return text
        self.held += text
        hits = [(at + len(stop), at, stop) for stop in self.stops if (at := self.held.find(stop)) >= 0]
        if hits:
            _, at, self.found = min(hits)
            shown, self.held = self.held[:at], ""
            return shown
        keep = max(_overlap(self.held, stop) for stop in self.stops)
        shown, self.held = self.held[: len(self.held) - keep], self.held[len(self.held) - keep :]
        return shown

    def close(self) -> str:
        """No more text comes: what was held back after all."""
        shown, self.held = self.held, ""
        return shown


def _overlap(text: str, stop: str) -> int:
    """The longest end of ``text`` that is a beginning of ``stop``."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-n:])), 0)
