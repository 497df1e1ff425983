"""Languages: the code of the one that is read and of the one that is written, put where a checkpoint wants them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from plait.generation.errors import GenerationError

if TYPE_CHECKING:
    from plait.checkpoint import DecodeRules
    from plait.text import Tokenizer


def between(
    tokenizer: Tokenizer, rules: DecodeRules, source: str | None, target: str | None
) -> tuple[Tokenizer, DecodeRules, str]:
    """A tokenizer that reads ``source``, rules that write ``target``, and what is put before every text.

    Codes are spelt as in the vocabulary: NLLB's ``fra_Latn``, mBART's ``fr_XX``, M2M-100's ``__fr__`` or just ``fr``;
    of a Marian with several targets ``fra``, for its ``>>fra<<``. ``None`` leaves what the checkpoint says.
    ``GenerationError`` for a code that is none, and where a checkpoint that writes several languages is told none.
    """
    many = _usual(tokenizer) is not None
    if source is not None:
        code = _spelt(tokenizer, source) if many else None
        if code is None:
            raise GenerationError(f"source_language: this tokenizer has no code {source!r}; {_hint(tokenizer)}")
        tokenizer = tokenizer.speaking(code)
    if target is None:
        if many and rules.forced_first is None and not _is_code(tokenizer, rules.start):
            raise GenerationError(
                f"target_language: this checkpoint writes several and is told none; {_hint(tokenizer)}"
            )
        return tokenizer, rules, ""
    if tokenizer.id(f">>{target}<<") is not None:
        return tokenizer, rules, f">>{target}<< "
    code = _spelt(tokenizer, target) if many else None
    id = None if code is None else tokenizer.id(code)
    if id is None:
        raise GenerationError(f"target_language: this tokenizer has no code {target!r}; {_hint(tokenizer)}")
    # mBART with 25 languages begins with the code; all others write it first
    begins = _is_code(tokenizer, rules.start) and rules.forced_first is None
    return tokenizer, dataclasses.replace(rules, **{"start" if begins else "forced_first": id}), ""


def _spelt(tokenizer: Tokenizer, code: str) -> str | None:
    """The code as the vocabulary spells it, if it is one."""
    return next((name for name in (code, f"__{code}__") if _is_code(tokenizer, tokenizer.id(name))), None)


def _usual(tokenizer: Tokenizer) -> int | None:
    """The code that stands around a text now: the one id there without a role."""
    codes = {id for id in (*tokenizer.prefix, *tokenizer.suffix) if _is_code(tokenizer, id)}
    return codes.pop() if len(codes) == 1 else None


def _is_code(tokenizer: Tokenizer, id: int | None) -> bool:
    """Whether an id is a special one that has no other role."""
    roles = {own for role, own in tokenizer.named.items() if role != "language"}
    return id is not None and id in tokenizer.special_ids and id not in roles


def _hint(tokenizer: Tokenizer) -> str:
    usual = _usual(tokenizer)
    if usual is None:
        return "it puts the code of no language around a text; leave it out."
    return f"give one as the vocabulary spells it, as {tokenizer.token(usual)!r} is."
