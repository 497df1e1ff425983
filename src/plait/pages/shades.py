"""Shades: a table whose cells are the darker, the larger their values: patterns of attention, layers by tokens."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from plait.pages.words import Said, in_html, plain


def shades(
    title: str | Said,
    columns: Sequence[str | Said],
    rows: Sequence[str | Said],
    values: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]] | None = None,
    *,
    most: float | None = None,
    least: float = 0.0,
) -> str:
    """A figure.

    Args:
        columns, rows: what each is called.
        values: row by row; what is no number stays white.
        texts: what stands in the cells; without it they are small and empty.
        most: the value that is darkest; none: the largest there is.
        least: the value that is white, and all below it.
    """
    finite = [value for row in values for value in row if math.isfinite(value)]
    top = most if most is not None else max(finite, default=1.0)
    head = "".join(f"<th scope=col><span>{in_html(name)}</span></th>" for name in columns)
    body = "".join(
        f"<tr><th scope=row>{in_html(name)}</th>"
        + "".join(
            _cell(value, least, top, None if texts is None else texts[i][j], f"{plain(name)}, {plain(columns[j])}")
            for j, value in enumerate(values[i])
        )
        + "</tr>"
        for i, name in enumerate(rows)
    )
    kind = "shades" if texts is not None else "shades small"
    return (
        f'<figure><figcaption>{in_html(title)}</figcaption><div class="across-scroll" tabindex="0">'
        f'<table class="{kind}"><tr><td></td>{head}</tr>{body}</table></div></figure>'
    )


def _cell(value: float, least: float, top: float, text: str | None, where: str) -> str:
    share = min(1.0, max(0.0, (value - least) / (top - least))) if math.isfinite(value) and top > least else 0.0
    dark = " class=dark" if share > 0.55 else ""
    said = html.escape(f"{where}: {value:.4g}", quote=True)
    return f'<td{dark} style="--share:{share:.3f}" title="{said}">{html.escape(text or "")}</td>'
