"""The lock of a runner: of all threads one at a time is in it, and none when the process forks or ends."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Any

LONGEST = 60.0  # seconds that the end of the process waits for a pass: whatever it reads would be taken from under it

_all: weakref.WeakSet[RunnerLock] = weakref.WeakSet()
_forking = threading.Lock()
_stopped: list[RunnerLock] = []  # by the thread that forks


class RunnerLock:
    """``with lock:``, which the thread that has it may say again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def acquire(self, seconds: float = -1) -> bool:
        """Keep others out; whether that came about within the time."""
        return self._lock.acquire(timeout=seconds)

    def release(self) -> None:
        """Let others in again."""
        self._lock.release()


def _keep_out(seconds: float = -1) -> list[RunnerLock]:
    return [lock for lock in list(_all) if lock.acquire(seconds)]


def _before_fork() -> None:
    _forking.acquire()
    _stopped.extend(_keep_out())


def _after_fork() -> None:
    while _stopped:
        _stopped.pop().release()
    _forking.release()


atexit.register(_keep_out, LONGEST)
# A child has no other threads: what one of them held, or had half written, would stay so for ever.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
