"""Inspected: what ``plait inspect`` finds, as a page: a figure where it has one, and the table."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plait.checkpoint import Checkpoint
from plait.inspection import InspectionError, Trace, lens, trace
from plait.inspection.reading import spell
from plait.pages import page, part, shades

MOST = 40  # tokens that a figure has room for

Rows = Sequence[Mapping[str, Any]]


def inspected(kind: str, model: str, text: str, rows: Rows, figures: Sequence[str] = ()) -> str:
    """The page.

    Args:
        kind: what was looked at, ``model`` in what, and ``text`` while it read what.
        rows: the table.
        figures: see ``figures_of``.
    """
    title = f"{kind.capitalize()} of {model}"
    body = [
        f"<header><h1>{html.escape(title)}</h1><p>{html.escape(text)}</p></header>",
        *figures,
        part("Table", _table(rows)),
    ]
    return page(title, body)


def figures_of(kind: str, checkpoint: Checkpoint, text: str, rows: Rows, target: str | None = None) -> list[str]:
    """The figures of a kind, none for most. Raises ``InspectionError`` for a text that is too long to draw."""
    if kind == "attention":
        seen = trace(checkpoint, text, "*.pattern", target=target)
        return list(_patterns(seen))
    if kind == "lens":
        return [_lens(checkpoint, trace(checkpoint, text, "*.output", target=target))]
    if kind == "tracing":
        columns = [name for name in rows[0] if name != "layer"]
        values = [[row[name] for name in columns] for row in rows]
        names = [f"layer {row['layer']}" for row in rows]
        return [shades("The answer's probability once a layer's stream is put back at a token", columns, names, values)]
    if kind == "patching":
        return [_patched(rows)]
    return []


def _short(n: int) -> None:
    if n > MOST:
        raise InspectionError(f"text: its {n} tokens are more than the {MOST} that a page can draw; cut it.")


def _patterns(seen: Trace) -> Iterator[str]:
    _short(max(len(seen.reading), len(seen.reading.source_texts)))
    for name, pattern in seen.items():
        tower, _, _ = name.partition(".")
        queries = seen.reading.seen_by(tower)
        keys = seen.reading.seen_by("encoder") if ".cross." in name else queries
        heads = "".join(
            shades(f"head {head}", keys, queries, one.float().tolist(), most=1.0) for head, one in enumerate(pattern)
        )
        site = name.removesuffix(".pattern")
        yield f'<details><summary>{site}</summary><div class="grid-of">{heads}</div></details>'


def _lens(checkpoint: Checkpoint, seen: Trace) -> str:
    _short(len(seen.reading))
    tokenizer = checkpoint.tokenizer
    writer = tokenizer if tokenizer is None or tokenizer.target is None else tokenizer.target
    names, values, texts = list[str](), list[list[float]](), list[list[str]]()
    for name, logits in lens(seen):
        best = (logits if logits.ndim > 1 else logits[None]).float().softmax(-1).max(-1)
        names.append(name)
        values.append(best.values.tolist())
        texts.append([spell(token, writer) for token in best.indices.tolist()])
    return shades(
        "What the stream behind each layer would say next", seen.reading.texts, names, values, texts, most=1.0
    )


def _patched(rows: Rows) -> str:
    sites = list(dict.fromkeys(row["site"] for row in rows))
    first = [row for row in rows if row["site"] == sites[0]]
    columns = [str(row.get("token", row.get("head"))) for row in first]
    values = [[row["share"] for row in rows if row["site"] == site] for site in sites]
    return shades("How much of the way back each value brings", columns, sites, values, most=1.0)


def _table(rows: Rows) -> str:
    if not rows:
        return ""
    head = "".join(f"<th{_class(rows[0][name])}>{html.escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td{_class(value)}>{html.escape(_cell(value))}</td>" for value in row.values()) + "</tr>"
        for row in rows
    )
    return f'<div class="card"><table><tr>{head}</tr>{body}</table></div>'


def _class(value: Any) -> str:
    return ' class="number"' if isinstance(value, int | float) else ""


def _cell(value: Any) -> str:
    return (
        ""
        if value is None
        else f"{value:,}"
        if isinstance(value, int)
        else (f"{value:.4g}" if isinstance(value, float) else str(value))
    )
