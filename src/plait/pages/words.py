"""Words: what a page or a terminal says, in English and in Chinese, from a table of both.

A table is a TOML file beside the code that uses it:

    [queries]
    en = "Queries of head {head}"
    zh = "第 {head} 个头的查询"
"""

from __future__ import annotations

import html
import string
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

Language = Literal["en", "zh"]
LANGUAGES: dict[Language, str] = {"en": "English", "zh": "中文"}


@dataclass(frozen=True)
class Said:
    """One text in both languages."""

    en: str
    zh: str

    def within(self, language: Language) -> str:
        """It in one of them."""
        return getattr(self, language)

    def format(self, **values: Any) -> Said:
        """With its fields filled, by texts, numbers, or what is said in both languages itself."""

        def filled(language: Language) -> str:
            own = {name: plain(value, language) for name, value in values.items()}
            return self.within(language).format(**own)

        return Said(filled("en"), filled("zh"))


class Words(Mapping[str, Said]):
    """A table of texts by their keys.

    Raises ``ValueError`` for a text that lacks a language, or whose languages have other fields.
    """

    def __init__(self, table: Mapping[str, Mapping[str, str]]) -> None:
        for key, said in table.items():
            if set(said) != set(LANGUAGES):
                raise ValueError(
                    f"{key}: it is said in {', '.join(said) or 'nothing'}; {', '.join(LANGUAGES)} belong there."
                )
            if _fields(said["en"]) != _fields(said["zh"]):
                raise ValueError(f"{key}: its languages have other fields: {said['en']!r}, {said['zh']!r}.")
        self._said = {key: Said(**said) for key, said in table.items()}

    @classmethod
    def of(cls, package: str, name: str) -> Words:
        """The table ``name.toml`` of a package."""
        return cls(tomllib.loads((files(package) / f"{name}.toml").read_text(encoding="utf-8")))

    def __getitem__(self, key: str) -> Said:
        return self._said[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)

    def say(self, key: str, **values: Any) -> Said:
        """A text with its fields filled."""
        return self[key].format(**values)


def plain(text: Any, language: Language = "en") -> str:
    """A text, or what is said in both languages, in one."""
    return text.within(language) if isinstance(text, Said) else str(text)


def in_html(text: str | Said) -> str:
    """It as HTML: of what is said in both languages the page shows one."""
    if isinstance(text, str):
        return html.escape(text)
    return "".join(
        f'<span class="said" lang="{language}">{html.escape(text.within(language))}</span>' for language in LANGUAGES
    )


def _fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
