"""``plait translate``: lines of standard input to lines of standard output, one for each, in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.generate import NO_SEARCHING, Searching
from plait.cli.models import Loading, Running, check_text
from plait.cli.reading import byte_lines

if TYPE_CHECKING:
    from plait.generation import Translation


@dataclass(frozen=True, kw_only=True)
class Languages:
    """From which language into which. What is not given, the checkpoint says.

    Parameters
    ----------
    source_language
        The code of the lines' language as the vocabulary spells it: fra_Latn (NLLB), fr_XX (mBART), fr (M2M-100).
    target_language
        The code of the language to translate into; for a Marian with several, fra of its >>fra<<.
    template
        What a line is put into, in place of {}: "translate English to German: {}" for T5.
    """

    source_language: str | None = None
    target_language: str | None = None
    template: str = "{}"


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How lines are read, cut and put together.

    Parameters
    ----------
    split
        long cuts the lines that are too long, behind sentences; sentences cuts every line so.
    longest
        Source tokens that are read at once, the end counted; what is not given is what the model has positions for.
    max_new_tokens
        Stop after this many tokens of a part; what is not given is what the checkpoint says, or twice the source's
        and 50.
    batch_tokens
        Source tokens of a batch, padding counted.
    window
        Lines read ahead and sorted by length into batches; what is not given is 1024, or 1 from a terminal, which
        answers each line at once.
    """

    split: Literal["long", "sentences"] = "long"
    longest: int | None = None
    max_new_tokens: int | None = None
    batch_tokens: int = 2048
    window: int | None = None


def translate(
    model: str,
    /,
    *,
    alignments: bool = False,
    languages: Annotated[Languages, Parameter(name="*")] = Languages(),
    searching: Annotated[Searching, Parameter(name="*")] = NO_SEARCHING,
    batching: Annotated[Batching, Parameter(name="*")] = Batching(),
    running: Annotated[Running, Parameter(name="*")] = Running(),
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Translate the lines of standard input: plait translate MODEL < in > out.

    Each line gives one line, a blank one a blank one. With --n-best each gives so many, best first: its number from 0,
    the text and its score, with ||| between.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    alignments
        Behind each text, with --n-best the first of a line, a tab and pairs i-j: the token i of the source that token
        j was written from, both counted from 0 without special tokens.
    """
    from dataclasses import asdict

    from plait.generation import translate_lines

    running.check()
    check_text(model)
    options: dict[str, Any] = {**asdict(languages), **searching.options(), **asdict(batching)}
    if batching.window is None:
        options["window"] = 1 if sys.stdin and sys.stdin.isatty() else 1024
    checkpoint, runner = running.open(model, loading)
    if alignments and runner is not None:
        checkpoint = loading.open(model)  # the plain model shows what it attends to, and so is wanted in memory
    options |= {"runner": runner, "alignments": alignments}
    if runner is None:
        from plait.generation import ModelRunner

        options["runner"] = ModelRunner(checkpoint.model)
    found = translate_lines(checkpoint, byte_lines(), **options)
    with counting() as advance:
        for number, one in enumerate(found):
            for line in shown(number, one, many=searching.n_best is not None, alignments=alignments):
                sys.stdout.write(f"{line}\n")
            if options["window"] == 1:
                sys.stdout.flush()
            advance()


def shown(number: int, one: Translation, *, many: bool, alignments: bool) -> Iterator[str]:
    """What is printed of a line."""
    pairs = "\t" + " ".join(f"{i}-{j}" for i, j in one.alignment) if alignments else ""
    if not many:
        yield one.text + pairs
        return
    for rank, (text, score) in enumerate(one.candidates):
        yield f"{number} ||| {text} ||| {0.0 if score is None else score:.4f}" + (pairs if rank == 0 else "")


@contextmanager
def counting() -> Iterator[Callable[[], None]]:
    """Count lines on stderr while they come; only on a terminal, and not where the text itself goes there."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.completed:,} lines"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("lines", total=None)
        yield lambda: bar.advance(task)
