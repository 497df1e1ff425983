"""Page: one HTML file with its style and script inside, which opens from a disk and asks nothing of a network."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from plait.pages.words import LANGUAGES, Language, Said, in_html, plain


def page(
    title: str | Said,
    body: Iterable[str],
    *,
    styles: Iterable[str] = (),
    scripts: Iterable[str] = (),
    data: Any = None,
    language: Language = "en",
) -> str:
    """The file's text.

    Args:
        title: of the window; where it is said in two languages, the page has a switch between them.
        body: its parts, as HTML; empty ones are left out.
        styles, scripts: texts of CSS and JavaScript, after the pages' own.
        data: anything JSON can say; a script finds it as ``DATA``.
        language: that the page opens in.
    """
    both = isinstance(title, Said)
    titles = json.dumps({name: plain(title, name) for name in LANGUAGES} if both else {}, ensure_ascii=False)
    given = (
        ""
        if data is None
        else f"const DATA = {_inside(json.dumps(data, ensure_ascii=False, separators=(',', ':')))};\n"
    )
    script = "\n".join(filter(None, [given, *(_own(f"{name}.js") for name in ("language", "plane")), *scripts]))
    style = "\n".join([_own("base.css"), *styles])
    switch = "".join(f'<button type="button" data-to="{name}">{word}</button>' for name, word in LANGUAGES.items())
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(plain(title, language))}</title><style>\n{style}</style></head>\n<body>\n"
        + (f"<nav class=languages data-titles='{html.escape(titles)}'>{switch}</nav>\n" if both else "")
        + "\n".join(filter(None, body))
        + f"\n<footer>{in_html(WRITTEN if both else WRITTEN.en)}</footer>\n<script>\n{script}</script></body></html>\n"
    )


WRITTEN = Said("Written by plait.", "由 plait 生成。")


def part(title: str | Said, content: str) -> str:
    """A section under its heading; nothing where there is no content."""
    return f"<h2>{in_html(title)}</h2>\n{content}" if content else ""


def resource(package: str, name: str) -> str:
    """A file of a package, as text."""
    return (files(package) / name).read_text(encoding="utf-8")


def _own(name: str) -> str:
    return resource("plait.pages", name)


def _inside(text: str) -> str:
    """JSON that no browser takes for the end of a script."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
