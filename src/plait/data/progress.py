"""Progress over bytes: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watched(what: str, total: int, least: int = 1 << 20) -> Iterator[Callable[[int], object]]:
    """Show a bar on stderr, where a terminal is and there is more to do than ``least`` bytes; what is yielded is told
    of every so many bytes more."""
    if not sys.stderr.isatty() or total < least:
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)
