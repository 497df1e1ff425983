"""What the small JSON files beside a vocabulary say: roles of tokens, added tokens, the chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from plait.text.chat_template import ChatTemplate
from plait.text.conventions import ROLES, Convention
from plait.text.error import TokenizerError

_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


class TokenizerFiles:
    """tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder.

    ``usual``: the tokenizer class where they name none, without "Fast".
    """

    def __init__(self, folder: Path, usual: str | None = None) -> None:
        self.folder, self.usual = folder, usual
        self.config = read_json(folder / "tokenizer_config.json")
        self._map = read_json(folder / "special_tokens_map.json")

    @cached_property
    def class_name(self) -> str | None:
        """The tokenizer class the files are for, without "Fast"; None where nothing says."""
        name = self.config.get("tokenizer_class")
        if name is None or name.startswith(("PreTrained", "TokenizersBackend")):
            return self.usual
        return name.removesuffix("Fast")

    def convention(self, table: Mapping[str, Convention], default: str, files: str) -> Convention:
        """The row of the folder's class; raises TokenizerError where plait does not have that class."""
        name = self.class_name or default
        if name not in table:
            raise TokenizerError(
                f"{self.folder}: {files} of a {name} is not what plait reads ({', '.join(table)}); give the folder a "
                "tokenizer.json."
            )
        return table[name]

    def names(self, defaults: Mapping[str, str] | None = None) -> dict[str, str]:
        """Role to token, where a file says or the class implies."""
        said = {role: self._said(f"{role}_token", (defaults or {}).get(role)) for role in ROLES}
        return {role: name for role, name in said.items() if name is not None}

    def added(self) -> dict[int, AddedToken]:
        """The added tokens that the files give an id."""
        listed: Mapping[str, Any] = self.config.get("added_tokens_decoder") or {}
        tokens = {int(id): _added_token(token, special=False) for id, token in listed.items()}
        others: Mapping[str, int] = read_json(self.folder / "added_tokens.json")
        known = {token.content for token in tokens.values()}
        special = set(self.special_names())
        tokens |= {
            id: AddedToken(name, special=name in special, normalized=False)
            for name, id in others.items()
            if name not in known
        }
        return dict(sorted(tokens.items()))

    def special_names(self) -> list[str]:
        """The tokens that the files call special, by role or not."""
        more: list[Any] = []
        for key in ("additional_special_tokens", "extra_special_tokens"):
            value = self.config.get(key) or self._map.get(key) or ()
            more += value.values() if isinstance(value, Mapping) else value
        return [*self.names().values(), *(name for token in more if (name := _content(token)) is not None)]

    def around(self, convention: Convention, named: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids before and after a text: what the class implies, BOS and EOS as the files switch them."""
        before, after = convention.before, convention.after
        add_bos, add_eos = (self.config.get(f"add_{role}_token") for role in ("bos", "eos"))
        if add_bos is not None and before in ((), ("bos",)):
            before = ("bos",) if add_bos and "bos" in named else ()
        if add_eos is not None and after in ((), ("eos",)):
            after = ("eos",) if add_eos and "eos" in named else ()
        missing = [role for role in (*before, *after) if role not in named]
        if missing:
            raise TokenizerError(
                f"{self.folder}: the {missing[0]} token goes around texts, and the vocabulary has none."
            )
        return tuple(named[role] for role in before), tuple(named[role] for role in after)

    def chat_template(self, names: Mapping[str, str]) -> ChatTemplate | None:
        """The folder's chat template, its own file or what tokenizer_config.json holds; ``names``: role to token."""
        source: Any = self.config.get("chat_template")
        own = self.folder / "chat_template.json"
        if own.is_file():
            source = read_json(own).get("chat_template", source)
        named: dict[str, str] = {}
        if isinstance(source, str):
            named["default"] = source
        elif source is not None:
            named = {entry["name"]: entry["template"] for entry in source}
        for file in (self.folder / "additional_chat_templates").glob("*.jinja"):
            named[file.stem] = file.read_text("utf-8")
        own = self.folder / "chat_template.jinja"
        if own.is_file():
            named["default"] = own.read_text("utf-8")
        if not named:
            return None
        if "default" not in named:
            raise TokenizerError(f"{self.folder}: of the chat templates {', '.join(named)} none is called 'default'.")
        tokens = {f"{role}_token": name for role, name in names.items()}
        return ChatTemplate(source=named["default"], tool_use=named.get("tool_use"), tokens=tokens)

    def _said(self, key: str, default: str | None) -> str | None:
        for file in (self.config, self._map):
            if key in file:
                return _content(file[key])
        return default


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no file; raises TokenizerError where it is no JSON object."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path}: it is not JSON ({error}).") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: it holds a {type(value).__name__}, and an object is needed.")
    return value


def _content(token: Any) -> str | None:
    return token.get("content") if isinstance(token, Mapping) else token


def _added_token(token: Any, special: bool) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=special, normalized=False)
    return AddedToken(token["content"], **{flag: token[flag] for flag in _FLAGS if flag in token})
