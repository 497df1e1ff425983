"""How the command line speaks: tables and text on stdout, everything else on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

Format = Literal["text", "json"]

OPTIONS = {  # what plait's sentences advise in Python: the option that does it here
    r"\b(overwrite|random|pickle)=True": r"--\1",
    r"\bdtype='(\w+)'": r"--dtype \1",
    r"\bdialect='(\w+)'": r"--to \1",
    r"to read text with; give token ids": "to read text with; name a folder with its files (tokenizer.json, say)",
}


def error(sentence: str) -> None:
    """Say on stderr, in one line, what went wrong."""
    notice(sentence)


def notice(sentence: str) -> None:
    """Say something on stderr, in one line, that is not part of the answer; its advice names options."""
    for python, option in OPTIONS.items():
        sentence = re.sub(python, option, sentence)
    print(f"plait: {' '.join(sentence.split())}", file=sys.stderr)


def as_json(value: Any) -> None:
    """Print data for another program."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(rows: Sequence[Mapping[str, Any]], *, title: str | None = None) -> None:
    """Print rows under the keys of the first; whole numbers with thousands separators, numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    terminal = sys.stdout.isatty()
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in rows[0]:
        numeric = all(isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in rows)
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell(value)) for value in row.values()))
    # A pipe has no width: nothing is cut, folded or filled up for it.
    console = Console(width=None if terminal else 10_000, highlight=False)
    with console.capture() as written:
        console.print(grid)
    print("\n".join(line.rstrip() for line in written.get().splitlines()))


def cell(value: Any) -> str:
    """A value as a person reads it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Turn a spinner on stderr while something takes time; only on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def write_page(path: Path, page: str) -> None:
    """Put an HTML page in its place, whole, and say where it is."""
    from plait.checkpoint.replacing import whole_file

    path = path.expanduser()
    with whole_file(path) as new:
        new.write_text(page, encoding="utf-8")
    notice(f"{path}: open it in a browser.")


@contextmanager
def reading(files: Sequence[Path]) -> Iterator[tuple[Iterable[str], bool]]:
    """The lines of files, and whether a terminal watches: there a bar shows what is read, and how long is left."""
    from plait.text import lines

    total = sum(file.stat().st_size for file in files)  # whichever is not there is named before long work begins
    if not sys.stderr.isatty():
        yield lines(files), False
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total)

        def watched() -> Iterator[str]:
            for line in lines(files):
                bar.advance(task, len(line.encode()))
                yield line
            bar.stop()  # before the library shows bars of its own

        yield watched(), True
