"""``plait lab``: small experiments that measure on real modules what is told about Transformers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.cli.printing import notice, table, write_page
from plait.pages.words import Language, Words, plain

if TYPE_CHECKING:
    from plait.inspection.lab import Experiment, Finding, Result
    from plait.inspection.lab.performing import Progress

WORDS = Words.of("plait.cli", "lab")
WHOLE = Path("docs")  # where all experiments together are written, unless said


def lab(name: str = "", /, *, all: bool = False, out: Path | None = None, language: Language = "en") -> int:
    """Run experiments: each states a claim, measures it on real modules, and draws a figure.

    Without a name and without --all, those that there are are listed. Some train models, all of them small: together
    they take about ten minutes of two cores. What is done is kept until all is, so that the same command goes on.

    Parameters
    ----------
    name
        An experiment: norm, permutation, sinusoid, rope, learned, extrapolation, residual, depth, identity, towers,
        cross, one-tower, tying, share, memory, ladder.
    all
        All of them; worked-numbers.md and lab.html are written.
    out
        A folder for what is written; what is not given is docs with --all, and nothing is written of a single one.
    language
        Of what is printed and written; a page has both, and opens in this one.
    """
    from plait.inspection.lab.experiments import EXPERIMENTS, experiment
    from plait.inspection.lab.keeping import Kept
    from plait.inspection.lab.performing import perform

    if name and all:
        raise ValueError(f"{name}: --all is all experiments; give a name or --all.")
    if not name and not all:
        table([_listed(one, language) for one in EXPERIMENTS])
        return 0
    chosen, kept = EXPERIMENTS if all else (experiment(name),), Kept()
    results: dict[str, Result] = {}
    try:
        for progress in _watched(perform(chosen, kept), sum(one.seconds for one in chosen)):
            if progress.result is not None:
                results[progress.experiment.name] = progress.result
    except KeyboardInterrupt:
        notice("what was measured so far is kept; the same command goes on from there.")
        return 130
    found = [(one, results[one.name]) for one in chosen]
    for one, result in found:
        print(_summary(one, result, language) if all else _told(one, result, language))
    if all or out is not None:
        _write(found, (out or WHOLE).expanduser(), all, language)
    kept.forget(one.name for one in chosen)
    return 0


def _listed(one: Experiment, language: Language) -> dict[str, Any]:
    seconds = max(1, round(one.seconds / 2))
    heads = ("head_name", "head_title", "head_seconds")
    cells = (one.name, one.title.within(language), seconds)
    return {WORDS[head].within(language): cell for head, cell in zip(heads, cells, strict=True)}


def _watched(steps: Iterator[Progress], seconds: float) -> Iterator[Progress]:
    """The steps of work of so many seconds; a terminal is shown how far it is and how long it will take."""
    if not sys.stderr.isatty() or seconds < 2:
        yield from steps
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=120) as bar:
        task = bar.add_task("lab", total=seconds)
        for step in steps:
            bar.update(task, advance=step.seconds, description=step.experiment.name)
            yield step


# What is printed


def _summary(one: Experiment, result: Result, language: Language) -> str:
    """One line."""
    claims = [finding for finding in result.findings if not finding.circulates]
    wrong = [finding for finding in result.findings if finding.circulates]
    said = WORDS.say("holds", count=sum(f.holds for f in claims), of=len(claims)).within(language)
    if wrong:
        refuted = WORDS.say("refuted", count=sum(not f.holds for f in wrong), of=len(wrong)).within(language)
        said = f"{said}; {refuted}"
    return f"{one.name:<14}  {said}"


def _told(one: Experiment, result: Result, language: Language) -> str:
    """Claim, measurements, verdicts and figures."""
    from plait.inspection.lab.drawn import drawn

    parts = [f"{one.title.within(language)}\n\n{one.words['claim'].within(language)}"]
    parts.append("\n\n".join(_measured(finding, language) for finding in result.findings))
    parts += [drawn(figure, language) for figure in result.figures]
    parts += [one.words["explained"].within(language), _summary(one, result, language)]
    return "\n\n".join(parts)


def _measured(finding: Finding, language: Language) -> str:
    """A finding in three lines."""
    from plait.inspection.lab.written import verdict

    head = f"{finding.id + ' ' if finding.id else ''}{plain(finding.what, language)}"
    lines = (("claimed", finding.claimed), ("measured", finding.measured), ("verdict", verdict(finding)))
    return "\n".join([head, *(f"    {WORDS[key].within(language)} {plain(text, language)}" for key, text in lines)])


def _write(found: Sequence[tuple[Experiment, Result]], folder: Path, whole: bool, language: Language) -> None:
    """The page, and of all experiments the document."""
    from plait.checkpoint.replacing import whole_file
    from plait.inspection.lab.written import document
    from plait.studio.lab import lab_page

    if whole:
        path = folder / "worked-numbers.md"
        with whole_file(path) as new:
            new.write_text(document(found, language), encoding="utf-8")
        notice(f"{path}: every number, and every wrong claim beside a measurement.")
    name = "lab" if whole else found[0][0].name
    write_page(folder / f"{name}.html", lab_page(found, language))
