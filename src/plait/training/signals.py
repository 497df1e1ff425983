"""Signals: SIGINT and SIGTERM ask a run to end after its step, so that it can save; a second SIGINT ends it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self


class Asked:
    """Whether somebody asked the run to end; it listens inside a ``with`` block, in the main thread only, where Python
    delivers signals."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signal: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._hear) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number).name
