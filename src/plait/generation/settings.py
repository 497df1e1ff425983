"""Settings: how the next token is chosen and when a row ends, as one frozen record.

What the caller leaves open, the checkpoint's decode rules decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.generation.errors import GenerationError

if TYPE_CHECKING:
    from plait.checkpoint import DecodeRules
    from plait.generation.constraint import Constraint
    from plait.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every rule of decoding, in the order in which the rules are applied; the defaults are all off.

    Args:
        repetition_penalty: a token that stands in the prompt or was written is less likely above 1.
        frequency_penalty: taken from a token's logit for each time it was written.
        presence_penalty: taken from it once it was written.
        no_repeat_ngram: so many tokens in a row are not written twice; 0 is off.
        no_repeat_source_ngram: so many tokens in a row are not copied from the source, or from a decoder's prompt.
        banned: sequences of ids; the last token of one is banned where the others stand.
        min_length: no end before there are so many tokens, the prompt's included.
        min_new_tokens: no end before so many were written.
        forced_first: the id that is written first.
        forced_last: the id that is written where the limit is reached.
        temperature: 0 takes the likeliest token; 1 draws from the model's own distribution.
        top_k: draw among so many of the likeliest; 0 is all.
        top_p: draw among the likeliest that hold this share of the probability.
        min_p: draw among tokens at least this fraction as likely as the likeliest.
        typical_p: draw among the most typical tokens that hold this share of the probability.
        end: ids that end the row: ``(tokenizer.eos,)``, say.
        stop: texts that end it, and are not shown.
        constraint: what the whole text must be.

    Raises ``GenerationError`` where a value makes no sense.
    """

    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    no_repeat_ngram: int = 0
    no_repeat_source_ngram: int = 0
    banned: tuple[tuple[int, ...], ...] = ()
    min_length: int = 0
    min_new_tokens: int = 0
    forced_first: int | None = None
    forced_last: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    end: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        for name, (right, holds) in _RIGHT.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
                raise GenerationError(f"{name}: {value!r} makes no sense; give {right}.")
        if any(not sequence for sequence in self.banned):
            raise GenerationError("banned: an empty sequence bans nothing; give token ids, or sequences of them.")
        if any(not string for string in self.stop):
            raise GenerationError(
                "stop: an empty string would stop everywhere; give strings of at least one character."
            )
        if self.constraint is not None and not self.end:
            raise GenerationError("constraint: without an end id there is no end to a text that is complete; give one.")
        if self.greedy:
            for name, off in _FILTERS.items():
                if getattr(self, name) != off:
                    raise GenerationError(
                        f"{name}: {getattr(self, name)} changes nothing in greedy decoding; give a temperature above 0."
                    )

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, rather than a drawn one."""
        return self.temperature == 0


def _whole(value: float) -> bool:
    return isinstance(value, int) and value >= 0


_FILTERS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}  # of what is drawn, and where each is off

_RIGHT = {
    "repetition_penalty": ("a number above 0 (1 is off)", lambda x: 0 < x < math.inf),
    "frequency_penalty": ("a number from -1e30 to 1e30 (0 is off)", lambda x: abs(x) <= 1e30),
    "presence_penalty": ("a number from -1e30 to 1e30 (0 is off)", lambda x: abs(x) <= 1e30),
    "no_repeat_ngram": ("a whole number from 0 (0 is off)", _whole),
    "no_repeat_source_ngram": ("a whole number from 0 (0 is off)", _whole),
    "min_length": ("a whole number from 0", _whole),
    "min_new_tokens": ("a whole number from 0", _whole),
    "temperature": ("a number from 0 (0 is greedy)", lambda x: 0 <= x < math.inf),
    "top_k": ("a whole number from 0 (0 is off)", _whole),
    "top_p": ("a number from 0 to 1 (1 is off)", lambda x: 0 <= x <= 1),
    "min_p": ("a number from 0 to 1 (0 is off)", lambda x: 0 <= x <= 1),
    "typical_p": ("a number from 0 to 1 (1 is off)", lambda x: 0 <= x <= 1),
}


def settle(
    rules: DecodeRules,
    tokenizer: Tokenizer | None,
    vocab_size: int,
    *,
    temperature: float | None = None,
    repetition_penalty: float | None = None,
    frequency_penalty: float = 0.0,
    presence_penalty: float = 0.0,
    no_repeat_ngram: int | None = None,
    min_new_tokens: int | None = None,
    banned: Iterable[int | Sequence[int]] = (),
    stop: str | Iterable[str] = (),
    end: int | Iterable[int] | None = None,
    ignore_end: bool = False,
    constraint: Constraint | None = None,
    **filters: float | None,
) -> Settings:
    """The caller's wishes over the checkpoint's rules; an argument left at ``None`` is decided by the rules.

    ``filters``: ``top_k``, ``top_p``, ``min_p``, ``typical_p``. The ends are the union of the tokenizer's and the
    rules', unless ``end`` names others or ``ignore_end`` drops all.
    """
    if ignore_end and end is not None:
        raise GenerationError("end, ignore_end: end ids are given and ignored at once; give one of the two.")
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if stops and tokenizer is None:
        raise GenerationError("stop: without a tokenizer there is no text to find a stop string in; give end ids.")
    # What a small vocabulary does not have ends nothing: some classes write the ids of their large one
    known = tuple(end for end in end_ids(rules, tokenizer) if end < vocab_size)
    if temperature is None:
        temperature = rules.temperature if rules.sample else 0.0
    own = [(item,) if isinstance(item, int) else tuple(item) for item in banned]
    theirs = [sequence for sequence in rules.banned if sequence not in [(i,) for i in known]]  # an end is no bad word
    chosen: dict[str, Any] = {
        name: given if (given := filters.get(name)) is not None else off if temperature == 0 else getattr(rules, name)
        for name, off in _FILTERS.items()
    }
    settings = Settings(
        temperature=temperature,
        repetition_penalty=rules.repetition_penalty if repetition_penalty is None else repetition_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        no_repeat_ngram=rules.no_repeat_ngram if no_repeat_ngram is None else no_repeat_ngram,
        no_repeat_source_ngram=rules.no_repeat_source_ngram,
        banned=tuple(dict.fromkeys([*own, *theirs])),
        min_length=rules.min_length or 0,
        min_new_tokens=(rules.min_new_tokens or 0) if min_new_tokens is None else min_new_tokens,
        forced_first=rules.forced_first,
        forced_last=rules.forced_last,
        end=() if ignore_end else known if end is None else (end,) if isinstance(end, int) else tuple(end),
        stop=stops,
        constraint=constraint,
        **chosen,
    )
    for name in ("banned", "end"):
        check_ids(name, _flat(getattr(settings, name)), vocab_size)
    for name in ("forced_first", "forced_last"):
        check_ids(f"rules.{name}", [token for token in (getattr(rules, name),) if token is not None], vocab_size)
    return settings


def end_ids(rules: DecodeRules, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """Every id that ends a row: those of the rules, and the tokenizer's own."""
    own = () if tokenizer is None or tokenizer.eos is None else (tokenizer.eos,)
    return tuple(dict.fromkeys([*rules.end, *own]))


def start_id(rules: DecodeRules, vocab_size: int) -> int:
    """The token a decoder that reads a source begins with; ``GenerationError`` where the rules do not say."""
    start = rules.start if rules.start is not None else rules.bos
    if start is None:
        raise GenerationError("rules.start: the checkpoint does not say which token its decoder begins with; set it.")
    check_ids("rules.start", [start], vocab_size)
    return start


def check_ids(name: str, ids: Iterable[int], vocab_size: int) -> None:
    """Refuse what is no token id: ``GenerationError`` with the first one that is not."""
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise GenerationError(f"{name}: {token!r} is no token id; give whole numbers from 0 to {vocab_size - 1}.")


def check_seed(seed: int | None) -> None:
    """``GenerationError`` where a seed is given that is none."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63):
        raise GenerationError(f"seed: {seed!r} makes no sense; give a whole number from 0, below 2**63.")


def _flat(items: Iterable[int | tuple[int, ...]]) -> list[int]:
    return [token for item in items for token in (item if isinstance(item, tuple) else (item,))]
