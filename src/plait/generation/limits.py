"""Limits: how many tokens a row may write, settled before any work is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.generation.errors import GenerationError

if TYPE_CHECKING:
    from plait.checkpoint import DecodeRules

UNBOUNDED = 512  # new tokens where neither the caller, the rules nor the architecture sets a limit


def check_limits(max_new_tokens: int | None, max_length: int | None) -> None:
    """``GenerationError`` where both limits are given, or one is no positive whole number."""
    if max_new_tokens is not None and max_length is not None:
        raise GenerationError(
            f"max_new_tokens, max_length: both are given ({max_new_tokens} and {max_length}); give one of the two."
        )
    for name, value in (("max_new_tokens", max_new_tokens), ("max_length", max_length)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise GenerationError(f"{name}: {value!r} makes no sense; give a whole number from 1.")


def new_tokens(
    length: int,
    rules: DecodeRules,
    context: int | None,
    *,
    max_new_tokens: int | None = None,
    max_length: int | None = None,
) -> int:
    """How many tokens a row may write that begins with ``length``.

    One rule: the caller's limit; else the checkpoint's ``max_new_tokens``, else its ``max_length``, each as far as the
    ``context`` (the architecture's longest row) has room; else all the room there is. ``max_length`` counts the
    beginning too.
    ``GenerationError`` where there is no room, or the caller asks for more than there is.
    """
    check_limits(max_new_tokens, max_length)
    room = None if context is None else context - length
    if room is not None and room < 1:
        raise GenerationError(
            f"prompt: {length} tokens leave no room in a context of {context}; give at most {length + room - 1}."
        )
    given = max_new_tokens is not None or max_length is not None
    if not given:
        max_new_tokens = rules.max_new_tokens
        max_length = rules.max_length if max_new_tokens is None else None
    if max_length is not None:
        if max_length <= length:
            whose = "max_length" if given else "the checkpoint's max_length"
            raise GenerationError(
                f"{whose}: {max_length} tokens in all, and the prompt has {length}; give at least {length + 1}, or "
                "max_new_tokens."
            )
        max_new_tokens = max_length - length
    if max_new_tokens is None:
        return UNBOUNDED if room is None else room
    if room is None or max_new_tokens <= room:
        return max_new_tokens
    if given:
        raise GenerationError(
            f"prompt: {length} tokens and {max_new_tokens} new ones exceed the context of {context}; ask for at most "
            f"{room} new ones."
        )
    return room
