"""Report: a run as one HTML page that needs nothing else: curves, samples, layers, the account and the recipe."""

from __future__ import annotations

import html
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plait.account import account
from plait.architecture import Architecture
from plait.pages.charts import Line, chart, heat, number
from plait.pages.page import page, part, resource
from plait.training.display import FORMS, clock_time

SHOWN = 8  # samples of an evaluation


def report(
    lines: Iterable[Mapping[str, Any]],
    *,
    title: str,
    architecture: Architecture,
    recipe: str,
    facts: Mapping[str, Any] | None = None,
) -> str:
    """The page.

    Args:
        lines: what ``read_metrics`` reads.
        title: the run's name.
        architecture: the model's, for the account.
        recipe: the resolved recipe as TOML.
        facts: what the data held, by name.
    """
    by_kind: dict[str, list[Mapping[str, Any]]] = {"step": [], "evaluation": [], "layers": [], "samples": []}
    for line in lines:
        by_kind.setdefault(str(line["kind"]), []).append(line)
    steps, evaluations = by_kind["step"], by_kind["evaluation"]
    body = [
        f"<header><h1>{html.escape(title)}</h1><p>{html.escape(_in_words(architecture))}</p>",
        f"{_tiles(steps, evaluations)}</header>",
        part("Curves", _curves(steps, evaluations)),
        part("Layers", _layers(by_kind["layers"])),
        part("Samples", _samples(by_kind["samples"])),
        part("Data", _facts(facts or {})),
        part("Account", _account(architecture)),
        part("Recipe", _recipe(recipe)),
    ]
    return page(title, body, styles=[resource("plait.training", "report.css")])


def write_report(path: Path, page: str) -> None:
    """Put the page in its place, whole."""
    from plait.checkpoint.replacing import whole_file

    with whole_file(path) as new:
        new.write_text(page, encoding="utf-8")


def _in_words(a: Architecture) -> str:
    layers = " + ".join(str(tower.n_layers) for tower in a.towers)
    return (
        f"{a.kind} of {layers} layers, d_model {a.d_model:,}, {a.n_heads} heads, d_ff {a.d_ff:,}, "
        f"{a.vocab_size:,} tokens: {account(a).parameters:,} parameters"
    )


def _tiles(steps: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> str:
    found: list[tuple[str, str]] = []
    if steps:
        seconds, targets = (sum(step[key] or 0 for step in steps) for key in ("seconds", "targets"))
        found.append(("steps", f"{steps[-1]['step']:,}"))
        found.append(("training loss", _form("loss", _last_mean(steps, "loss"))))
        for name in _names(evaluations):
            last = [line for line in evaluations if name in line][-1]
            found.append((f"valid {name.replace('_', ' ')}", _form(name, last[name])))
        found.append(("tokens", number(float(f"{targets:.3g}"))))
        if seconds:
            found.append(("tokens/s", f"{targets / seconds:,.0f}"))
            found.append(("time in steps", clock_time(seconds)))
    tiles = "".join(f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in found)
    return f'<dl class="tiles">{tiles}</dl>' if tiles else ""


def _form(name: str, value: Any) -> str:
    return "none" if value is None or not math.isfinite(value) else FORMS.get(name, "{:.4f}".format)(value)


def _last_mean(steps: Sequence[Mapping[str, Any]], key: str, count: int = 20) -> float:
    """Over the last steps, by targets: one step's loss says little."""
    last = [step for step in steps[-count:] if step[key] is not None]
    weight = sum(step["targets"] for step in last)
    return sum(step[key] * step["targets"] for step in last) / weight if weight else math.nan


def _names(evaluations: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was measured, in order of appearance."""
    names = dict.fromkeys(
        name
        for line in evaluations
        for name, value in line.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
    return [name for name in names if name not in ("step", "seconds", "targets")]


def _points(lines: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(line["step"], math.nan if line[key] is None else line[key]) for line in lines if key in line]


def _curves(steps: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> str:
    loss = chart(
        "Loss, nats a target",
        [
            Line(name="training", points=_points(steps, "loss")),
            Line(name="validation", points=_points(evaluations, "loss"), colour="two", marked=True),
        ],
        tall=True,
    )
    speed = [(step["step"], step["targets"] / step["seconds"]) for step in steps if step.get("seconds")]
    small = [
        *(
            chart(
                f"Validation: {name.replace('_', ' ')}",
                [Line(name=name.replace("_", " "), points=_points(evaluations, name), colour="two", marked=True)],
            )
            for name in _names(evaluations)
            if name != "loss"
        ),
        chart("Gradient norm, before clipping", [Line(name="norm", points=_points(steps, "gradient_norm"))]),
        chart("Learning rate", [Line(name="lr", points=_points(steps, "lr"))], log=False, from_zero=True),
        chart("Tokens a second", [Line(name="tokens/s", points=speed, colour="three")], log=False, from_zero=True),
    ]
    return f'{loss}<div class="grid-of">{"".join(small)}</div>' if loss else ""


def _layers(lines: Sequence[Mapping[str, Any]]) -> str:
    figures = []
    titles = {"gradients": "Gradient norm by part", "activations": "Root mean square of what layers give, by site"}
    for key, title in titles.items():
        there = [line for line in lines if key in line]
        if not there:
            continue
        names = list(dict.fromkeys(name for line in there for name in line[key]))
        rows = {name: [_number(line[key].get(name)) for line in there] for name in names}
        figures.append(heat(title, [line["step"] for line in there], rows))
    return f'<div class="grid-of">{"".join(figures)}</div>' if figures else ""


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _samples(lines: Sequence[Mapping[str, Any]]) -> str:
    if not lines:
        return ""
    *earlier, last = lines
    said = f'<div class="card">{_sample_rows(last)}</div>'
    for line in reversed(earlier[-6:]):
        said += (
            f'<details><summary>step {line["step"]:,}</summary><div class="card">{_sample_rows(line)}</div></details>'
        )
    return f"<p>Step {last['step']:,}.</p>{said}"


def _sample_rows(line: Mapping[str, Any]) -> str:
    return "".join(
        '<dl class="sample">'
        + "".join(
            f'<dt>{html.escape(name)}</dt><dd class="{html.escape(name)}">{html.escape(str(text))}</dd>'
            for name, text in sample.items()
        )
        + "</dl>"
        for sample in line["samples"][:SHOWN]
    )


def _facts(facts: Mapping[str, Any]) -> str:
    tiles = "".join(
        f"<div><dt>{html.escape(name.replace('_', ' '))}</dt><dd>{html.escape(_fact(value))}</dd></div>"
        for name, value in facts.items()
    )
    return f'<dl class="tiles">{tiles}</dl>' if tiles else ""


def _fact(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def _account(architecture: Architecture) -> str:
    rows = account(architecture).rows()
    said = "".join(
        f"<tr{' class=total' if row.part == 'total' else ''}><td>{html.escape(row.part)}</td>"
        f'<td class="number">{row.parameters:,}</td>'
        f'<td class="bar">{"" if row.part == "total" else f"<i style=width:{100 * row.share:.1f}%></i>"}</td>'
        f'<td class="number">{100 * row.share:.1f} %</td><td class="number">{row.flops_per_token:,}</td></tr>'
        for row in rows
    )
    head = '<th>part</th><th class="number">parameters</th><th class="bar"></th><th class="number">share</th>'
    return f'<div class="card"><table><tr>{head}<th class="number">FLOPs a token</th></tr>{said}</table></div>'


def _recipe(text: str) -> str:
    from plait.records import to_toml

    parts = "".join(
        f"<section><pre>{html.escape(to_toml({name: table}))}</pre></section>"
        for name, table in tomllib.loads(text).items()
    )
    return f'<div class="card columns">{parts}</div>'
