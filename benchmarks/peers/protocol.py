"""One line of JSON a request, one line an answer: how the comparison drives a process that holds a model.

A worker sleeps in ``readline`` while another works. It needs the standard library alone, whichever Python runs it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def serve(commands: Mapping[str, Callable[..., Any]]) -> None:
    """Answer requests ``{"do": name, ...}`` from standard input until it closes."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not stand between the answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": commands[request.pop("do")](**request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=out, flush=True)


class Worker:
    """A process on the other end of ``serve``."""

    def __init__(self, python: str | Path, script: Path, environment: Mapping[str, str] | None = None) -> None:
        self.name = script.stem
        self._process = subprocess.Popen(
            [str(python), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def ask(self, do: str, **request: Any) -> Any:
        """The answer to one request; ``RuntimeError`` with what the worker says went wrong."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: the process ended ({self._process.wait()}) while asked to {do}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}, {do}: {answer['error']}")
        return answer["answer"]

    def cpu_seconds(self) -> float:
        """Processor time that all its threads have used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def packed(floats: Any) -> str:
    """float32 numbers as text; ``floats`` is anything with a buffer of them."""
    return base64.b64encode(memoryview(floats).cast("B")).decode()


def unpacked(text: str) -> array[float]:
    """The float32 numbers again."""
    return array("f", base64.b64decode(text))
