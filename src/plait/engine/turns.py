"""Turns: of all threads one at a time is in a runner, and none when the process forks or ends."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Any

LONGEST = 5.0  # seconds that the end of the process waits for a pass

_all: weakref.WeakSet[Turn] = weakref.WeakSet()
_stopped: list[Turn] = []


class Turn:
    """A lock of one runner, which its thread may take again: ``with turn:``."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        if not _all:
            # Once more where there were none: what is registered last is done first, so before the teams end.
            atexit.unregister(_stop)
            atexit.register(_stop, LONGEST)
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def stop(self, seconds: float = -1) -> bool:
        """Take it, to keep others out; whether it came within the time."""
        return self._lock.acquire(timeout=seconds)

    def go(self) -> None:
        """Give it back."""
        self._lock.release()


def _stop(seconds: float = -1) -> None:
    _stopped.extend(turn for turn in list(_all) if turn.stop(seconds))


def _go() -> None:
    while _stopped:
        _stopped.pop().go()


# A child has no other threads: what one of them held, or had half written, would stay so for ever.
os.register_at_fork(before=_stop, after_in_parent=_go, after_in_child=_go)
