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
from plait.text.ids import MOST_IDS, is_id
from plait.text.spelling import is_unicode

_MOST_SENTINELS = 10_000
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
        if name is not None and not isinstance(name, str):
            raise self._mistaken("tokenizer_class", name, "the name of a class, or null")
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

    def unknown(self, names: Mapping[str, str]) -> str:
        """The unknown token, of a kind that cannot do without."""
        if "unk" not in names:
            raise self._mistaken("unk_token", None, "a token's string, which this kind of vocabulary needs")
        return names["unk"]

    def added(self) -> dict[int, AddedToken]:
        """The added tokens that the files give an id."""
        listed: Any = self.config.get("added_tokens_decoder")
        if listed is not None and not isinstance(listed, dict):
            raise self._mistaken("added_tokens_decoder", listed, "an object of ids and tokens")
        tokens: dict[int, AddedToken] = {}
        for key, value in (listed or {}).items():
            id = int(key) if key.isascii() and key.isdigit() and len(key) < 9 else None
            if not is_id(id):
                raise self._mistaken("added_tokens_decoder", key, f"an id from 0 to below {MOST_IDS:,}, as a string")
            tokens[id] = self._added_token(value)
        others = read_json(self.folder / "added_tokens.json")
        for name, id in others.items():
            if not is_id(id):
                raise TokenizerError(
                    f"{self.folder / 'added_tokens.json'}: the id of {name!r} is {_shown(id)}; it must be from 0 to "
                    f"below {MOST_IDS:,}."
                )
        known = {token.content for token in tokens.values()}
        special = set(self.special_names())
        tokens |= {
            id: AddedToken(self._text("added_tokens.json", name), special=name in special, normalized=False)
            for name, id in others.items()
            if name not in known
        }
        return dict(sorted(tokens.items()))

    def special_names(self) -> list[str]:
        """The tokens that the files call special, by role or not."""
        more: list[tuple[str, Any]] = []
        for key in ("additional_special_tokens", "extra_special_tokens"):
            for file in (self.config, self._map):
                value = file.get(key)
                if value is not None and not isinstance(value, (list, dict)):
                    raise self._mistaken(key, value, "a list of tokens, or an object of names and tokens")
                if value:
                    more += [(key, token) for token in (value.values() if isinstance(value, dict) else value)]
                    break
        found = (name for key, token in more if (name := self._content(key, token)) is not None)
        return [*self.names().values(), *found]

    def switch(self, key: str) -> bool | None:
        """A setting that is on, off, or not said."""
        value: Any = self.config.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._mistaken(key, value, "true, false or null")
        return value

    def extra_ids(self, usual: int) -> int:
        """How many ``<extra_id_i>`` there are, ``usual`` where the files do not say."""
        said: Any = self.config.get("extra_ids")
        if said is None:
            return usual
        if not isinstance(said, int) or isinstance(said, bool) or not 0 <= said <= _MOST_SENTINELS:
            raise self._mistaken("extra_ids", said, f"a whole number from 0 to {_MOST_SENTINELS:,}")
        return said

    def around(self, convention: Convention, named: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids before and after a text: what the class implies, BOS and EOS as the files switch them."""
        before, after = convention.before, convention.after
        add_bos, add_eos = (self.switch(f"add_{role}_token") for role in ("bos", "eos"))
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
            if not isinstance(source, list) or not all(map(_is_named_template, source)):
                needed = "a string, or a list of objects with a name and a template"
                raise self._mistaken("chat_template", source, needed)
            named = {entry["name"]: entry["template"] for entry in source}
        for file in (self.folder / "additional_chat_templates").glob("*.jinja"):
            named[file.stem] = read_text(file)
        own = self.folder / "chat_template.jinja"
        if own.is_file():
            named["default"] = read_text(own)
        if not named:
            return None
        if "default" not in named:
            raise TokenizerError(f"{self.folder}: of the chat templates {', '.join(named)} none is called 'default'.")
        tokens = {f"{role}_token": name for role, name in names.items()}
        return ChatTemplate(source=named["default"], tool_use=named.get("tool_use"), tokens=tokens)

    def _said(self, key: str, default: str | None) -> str | None:
        for file in (self.config, self._map):
            if key in file:
                return self._content(key, file[key])
        return default

    def _content(self, key: str, token: Any) -> str | None:
        content = token.get("content") if isinstance(token, dict) else token
        if content is None and token is not None:
            raise self._mistaken(key, token, "a token's string, or an object with it as content")
        return None if content is None else self._text(key, content)

    def _text(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not is_unicode(value):
            raise self._mistaken(key, value, "a token's string, or an object with it as content")
        return value

    def _added_token(self, token: Any) -> AddedToken:
        content = self._text("added_tokens_decoder", self._content("added_tokens_decoder", token))
        flags = {flag: token[flag] for flag in _FLAGS if flag in token} if isinstance(token, dict) else {}
        if isinstance(token, str):
            flags = {"special": False, "normalized": False}
        for flag, value in flags.items():
            if not isinstance(value, bool):
                raise self._mistaken(f"added_tokens_decoder, {flag} of {content!r},", value, "true or false")
        return AddedToken(content, **flags)

    def _mistaken(self, key: str, value: Any, needed: str) -> TokenizerError:
        return TokenizerError(f"{self.folder}: {key} is {_shown(value)} in its JSON files; it must be {needed}.")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no file; raises TokenizerError where it is no JSON object."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except RecursionError:
        raise TokenizerError(f"{path}: its JSON is nested too deeply to be read; a few levels are usual.") from None
    except ValueError as error:
        raise TokenizerError(f"{path}: it is not JSON ({error}).") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: it holds a {type(value).__name__}, and an object is needed.")
    return value


def read_text(path: Path) -> str:
    """A file's text; raises TokenizerError where it is not UTF-8."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path}: it is not UTF-8 ({error}).") from None


def _is_named_template(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("name", "template"))


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
