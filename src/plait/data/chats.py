"""Chats: conversations from .jsonl files, one to a line: an object with "messages", or the list of them alone.

A message has a "role" and a "content", and what else its template reads. Left out and counted: conversations in which
no assistant says anything (blank), and lines that hold no messages (bad).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plait.data.lines import Tally, is_unicode, read_values

Messages = Sequence[Mapping[str, Any]]

ANSWERS = "assistant"  # the role that is learnt


def read_chats(paths: str | Path | Sequence[str | Path], tally: Tally) -> Iterator[Messages]:
    """The conversations of files, as they are read; .gz and .zst too. Raises DataError where a line is not UTF-8."""
    for path in [paths] if isinstance(paths, str | Path) else paths:
        for where, value in read_values(path, tally):
            messages: Any = value.get("messages") if isinstance(value, dict) else value
            if why := _wrong(messages):
                tally.spoil(where, why)
            elif not is_unicode(json.dumps(messages, ensure_ascii=False)):
                tally.spoil(where, "it has half of a surrogate pair, which is no character")
            elif any(message["role"] == ANSWERS and _says(message) for message in messages):
                yield messages
            else:
                tally.blank += 1


def asked_first(messages: Messages) -> str:
    """What a conversation says before its first answer: by that one is told from another, not by a system's words."""
    before = itertools.takewhile(lambda message: message["role"] != ANSWERS, messages)
    return json.dumps([message["content"] for message in before], ensure_ascii=False)


def _wrong(messages: Any) -> str:
    if not isinstance(messages, list) or not messages:
        return "it has no list of messages"
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
            return f"message {number} has no role and content"
    return ""


def _says(message: Mapping[str, Any]) -> bool:
    content = message["content"]
    return bool(content.strip() if isinstance(content, str) else content or message.get("tool_calls"))
