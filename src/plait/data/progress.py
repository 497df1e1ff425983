"""Progress: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


@contextmanager
def watched(what: str, total: int, least: int = 1 << 20) -> Iterator[Callable[[int], object]]:
    """Show a bar on stderr, where a terminal is and there is more to do than ``least`` bytes; what is yielded is told
    of every so many bytes more."""
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with _bar(what, total, least, DownloadColumn, TransferSpeedColumn) as advance:
        yield advance


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """The same over ``total`` things, where they are several."""
    from rich.progress import MofNCompleteColumn

    with _bar(what, total, 2, MofNCompleteColumn) as advance:
        yield advance


@contextmanager
def _bar(what: str, total: int, least: int, *middle: Callable[[], ProgressColumn]) -> Iterator[Callable[[int], object]]:
    if not sys.stderr.isatty() or total < least:
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), *(column() for column in middle), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)
