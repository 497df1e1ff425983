"""A process that renders templates and can be killed: time, memory and output of untrusted code are bounded.

The child is small (Python, jinja2), starts at the first rendering and stays for the next ones. It limits its own
memory, output and processor time, at whose end the system kills it, which stops any loop. From here it is killed where
no answer comes for much longer.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.text.error import TokenizerError

_PROGRAM = Path(__file__).with_name("sandbox_child.py")
_START_SECONDS = 60.0
_WALL = 12  # times the processor time that a rendering may take, there is for its answer to come
_KEPT_ENVIRONMENT = ("LD_LIBRARY_PATH", "SYSTEMROOT", "TZ")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one rendering may take: seconds of processor time, bytes of address space, characters of output."""

    seconds: float = 5.0
    memory: int = 512 * 2**20
    output: int = 16 * 2**20


def render(template: str, variables: Mapping[str, Any], limits: Limits) -> str:
    """A Jinja template rendered in the child; raises TokenizerError in one sentence where it cannot be."""
    request = {"template": template, "variables": variables, "memory": limits.memory, "output": limits.output}
    try:
        times = {"seconds": limits.seconds, "wall": _WALL * limits.seconds}
        line = json.dumps(request | times).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise TokenizerError(f"chat template: its variables must be plain JSON values ({error}).") from None
    with _lock:
        child = _kept_child()
        answer = child.answer(line, _WALL * limits.seconds)
        if answer is None:
            cause = f"took more than {limits.seconds:g} seconds" if child.overdue else "crashed the process it runs in"
            raise TokenizerError(f"chat template: it {cause} and was stopped.")
    if "error" in answer:
        raise TokenizerError(f"chat template: {answer['error']}")
    return answer["text"]


class _Child:
    def __init__(self) -> None:
        found = (importlib.util.find_spec(name) for name in ("jinja2", "markupsafe"))
        paths = {str(Path(spec.origin).parents[1]) for spec in found if spec and spec.origin}
        self.owner = os.getpid()
        self.overdue = False
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-B", str(_PROGRAM), *sorted(paths)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ},
            start_new_session=True,  # an interrupt at the terminal is not for the child
        )
        if self.answer(b"", _START_SECONDS) is None:
            raise TokenizerError("chat template: the process that renders it did not start; is jinja2 installed?")

    def answer(self, line: bytes, seconds: float) -> dict[str, Any] | None:
        """The child's answer to a request, or None where it is dead, or was killed for being overdue."""
        assert self.process.stdin is not None and self.process.stdout is not None
        timer = threading.Timer(seconds, self._kill_overdue)
        timer.daemon = True
        timer.start()
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except OSError:
            answer = b""
        finally:
            timer.cancel()
        if answer.endswith(b"\n"):
            return json.loads(answer)
        self.close()
        self.overdue |= self.process.returncode == -getattr(signal, "SIGPROF", 999)
        return None

    def close(self) -> None:
        """Kill the child, unless it is another process's, and close this one's ends of its pipes."""
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:  # what was left to write has no reader
                pass

    def _kill_overdue(self) -> None:
        self.overdue = True
        self.process.kill()


_lock = threading.Lock()
_child: _Child | None = None


def _kept_child() -> _Child:
    global _child
    usable = _child is not None and _child.owner == os.getpid() and _child.process.poll() is None
    if _child is not None and not usable:  # it died, or this process is a fork and the child answers the other
        _child.close()
        _child = None
    if _child is None:
        _child = _Child()
    return _child


@atexit.register
def _close_child() -> None:
    if _child is not None:
        _child.close()
