"""Written: what the experiments found as one document, `docs/worked-numbers.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from plait.inspection.lab.drawn import drawn
from plait.inspection.lab.experiment import Experiment, Finding, Result
from plait.inspection.lab.figures import Table
from plait.pages.words import Language, Said, Words, plain

WORDS = Words.of("plait.inspection.lab", "written")
GROUPS = "NDPAF"  # of numbers, in the order in which they are told

Found = Sequence[tuple[Experiment, Result]]


def document(found: Found, language: Language = "en") -> str:
    """All of it: the numbers, the wrong claims, and a section for each experiment."""

    def say(key: str, **values: object) -> str:
        return WORDS.say(key, **values).within(language)

    numbers = [(one, finding) for one, result in found for finding in result.findings if finding.id[:1] in GROUPS]
    numbers = [pair for pair in numbers if pair[1].id]
    numbers.sort(key=lambda pair: (GROUPS.index(pair[1].id[0]), int(pair[1].id[1:])))
    wrong = [(one, finding) for one, result in found for finding in result.findings if finding.circulates]
    wrong.sort(key=lambda pair: pair[1].id)
    counts = {
        "holds": sum(finding.holds for _, finding in numbers),
        "numbers": len(numbers),
        "refuted": sum(not finding.holds for _, finding in wrong),
        "wrong": len(wrong),
    }
    parts = [
        f"# {say('title')}",
        say("opening"),
        say("counts", **counts),
        f"## {say('numbers')}",
        "\n".join(_rows(numbers, language, ("id", "what", "claimed", "measured", "holds", "experiment"))),
        f"## {say('wrong')}",
        say("wrong_opening"),
        "\n".join(_rows(wrong, language, ("id", "circulates", "told", "measured", "refuted", "experiment"))),
        *(section(one, result, language) for one, result in found),
    ]
    return "\n\n".join(parts) + "\n"


def section(experiment: Experiment, result: Result, language: Language = "en") -> str:
    """One experiment."""
    words = experiment.words
    parts = [
        f"## `{experiment.name}`: {words['title'].within(language)}",
        words["claim"].within(language),
        "\n".join(
            _rows(
                [(experiment, one) for one in result.findings], language, ("id", "what", "claimed", "measured", "found")
            )
        ),
        *(_figure(figure, language) for figure in result.figures),
        words["explained"].within(language),
    ]
    return "\n\n".join(parts)


def _figure(figure: object, language: Language) -> str:
    if isinstance(figure, Table):
        heads = [plain(head, language) for head in figure.columns]
        rows = [[plain(text, language) for text in row] for row in figure.rows]
        title = plain(figure.title, language)
        return "\n".join([f"{title}:", "", *_table(heads, rows)])
    return f"```text\n{drawn(figure, language)}\n```"  # type: ignore[arg-type]


def _rows(findings: Sequence[tuple[Experiment, Finding]], language: Language, heads: Sequence[str]) -> Iterator[str]:
    """Findings as a table."""
    cells = [_cells(one, finding, language) for one, finding in findings]
    names = [WORDS[f"head_{head}"].within(language) for head in heads]
    yield from _table(names, [[row[head] for head in heads] for row in cells])


def _cells(experiment: Experiment, finding: Finding, language: Language) -> Mapping[str, str]:
    claimed, measured = plain(finding.claimed, language), plain(finding.measured, language)
    what, found = plain(finding.what, language), verdict(finding).within(language)
    return {
        "id": finding.id,
        "what": what,
        "circulates": what,
        "claimed": claimed,
        "told": claimed,
        "measured": measured,
        "holds": found,
        "refuted": found,
        "found": found,
        "experiment": f"`{experiment.name}`",
    }


def verdict(finding: Finding) -> Said:
    """What comes of a claim."""
    if finding.circulates:
        return WORDS["is_refuted" if not finding.holds else "not_refuted"]
    return WORDS["is_so" if finding.holds else "not_so"]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |"
