"""Page: experiments as one HTML file: claims, what was measured, verdicts and figures, in English and Chinese."""

from __future__ import annotations

from collections.abc import Sequence

from plait.inspection.lab.experiment import Experiment, Finding, Result
from plait.inspection.lab.written import verdict
from plait.pages import Language, Words, in_html, page
from plait.pages.page import resource
from plait.studio.lab.figures import drawn

WORDS = Words.of("plait.studio.lab", "page")

Found = Sequence[tuple[Experiment, Result]]


def lab_page(found: Found, language: Language = "en") -> str:
    """The page of one experiment, or of several with a list of them and the claims that they refute."""
    if len(found) == 1:
        ((one, result),) = found
        title, body = one.title, [f"<header><h1>{in_html(one.title)}</h1></header>", _content(one, result)]
    else:
        title = WORDS["title"]
        body = [
            f"<header><h1>{in_html(title)}</h1><p>{in_html(WORDS['opening'])}</p>{_tiles(found)}</header>",
            _contents(found),
            _refuted(found),
            *(
                f'<section id="{one.name}"><h2>{in_html(one.title)}</h2>{_content(one, r)}</section>'
                for one, r in found
            ),
        ]
    return page(title, body, styles=[resource("plait.studio.lab", "lab.css")], language=language)


def _content(experiment: Experiment, result: Result) -> str:
    claim, explained = experiment.words["claim"], experiment.words["explained"]
    rows = "".join(_finding(finding) for finding in result.findings)
    heads = "".join(f"<th>{in_html(WORDS[f'head_{name}'])}</th>" for name in ("what", "claimed", "measured", "verdict"))
    figures = "".join(map(drawn, result.figures))
    return (
        f'<p class="claim">{in_html(claim)}</p>'
        f'<div class="card findings" tabindex="0"><table><tr><th></th>{heads}</tr>{rows}</table></div>'
        f'<div class="grid-of">{figures}</div><p class="explained">{in_html(explained)}</p>'
    )


def _finding(finding: Finding) -> str:
    kind = ("refuted" if not finding.holds else "open") if finding.circulates else "holds" if finding.holds else "not"
    wrong = finding.circulates
    name = f"<s>{in_html(finding.id)}</s>" if wrong else in_html(finding.id)
    what = WORDS.say("told", claim=finding.what) if wrong else finding.what
    cells = (
        ("told" if wrong else "claimed", in_html(finding.claimed)),
        ("measured", in_html(finding.measured)),
        ("verdict", f"<span class=verdict>{in_html(verdict(finding))}</span>"),
    )
    rest = "".join(f"<td><span class=label>{in_html(WORDS[f'head_{key}'])}</span>{cell}</td>" for key, cell in cells)
    return f'<tr class="{kind}"><td>{name}</td><td>{in_html(what)}</td>{rest}</tr>'


def _tiles(found: Found) -> str:
    numbers = [f for _, result in found for f in result.findings if f.id and not f.circulates]
    wrong = [f for _, result in found for f in result.findings if f.circulates]
    tiles = (
        ("experiments", f"{len(found)}"),
        ("numbers", f"{sum(f.holds for f in numbers)} / {len(numbers)}"),
        ("refuted", f"{sum(not f.holds for f in wrong)} / {len(wrong)}"),
    )
    said = "".join(f"<div><dt>{in_html(WORDS[f'tile_{name}'])}</dt><dd>{value}</dd></div>" for name, value in tiles)
    return f'<dl class="tiles">{said}</dl>'


def _contents(found: Found) -> str:
    links = "".join(f'<li><a href="#{one.name}">{in_html(one.title)}</a></li>' for one, _ in found)
    return f'<nav class="contents"><ul>{links}</ul></nav>'


def _refuted(found: Found) -> str:
    wrong = [finding for _, result in found for finding in result.findings if finding.circulates]
    if not wrong:
        return ""
    rows = "".join(map(_finding, sorted(wrong, key=lambda finding: finding.id)))
    heads = "".join(f"<th>{in_html(WORDS[f'head_{name}'])}</th>" for name in ("what", "told", "measured", "verdict"))
    return (
        f"<h2>{in_html(WORDS['wrong'])}</h2>"
        f'<div class="card findings" tabindex="0"><table><tr><th></th>{heads}</tr>{rows}</table></div>'
    )
