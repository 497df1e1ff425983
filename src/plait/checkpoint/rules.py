"""DecodeRules: what a checkpoint says about decoding, as data, with one reader for each place where it is written.

The files are ``generation_config.json``, ``config.json`` (older checkpoints keep it all there), the tokenizer's end
token, and GGUF metadata. Only what is written counts: an absent number is no rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from plait.checkpoint.notice import CheckpointError, notice
from plait.words import nearest

if TYPE_CHECKING:
    from plait.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class DecodeRules:
    """Token ids and numbers that decoding starts from; the defaults are 'no such rule'."""

    start: int | None = None  # what a decoder behind an encoder begins with
    bos: int | None = None
    pad: int | None = None
    end: tuple[int, ...] = ()  # any of these ends a row
    forced_first: int | None = None
    forced_last: int | None = None  # at the length limit
    banned: tuple[tuple[int, ...], ...] = ()  # sequences that must not be completed
    max_length: int | None = None  # prompt included
    max_new_tokens: int | None = None
    min_length: int | None = None
    min_new_tokens: int | None = None
    no_repeat_ngram: int = 0  # 0: off
    no_repeat_source_ngram: int = 0  # the same, of what was read: a source, or a decoder's prompt
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    penalty_alpha: float = 0.0  # of a contrastive search among top_k; 0: off
    repetition_penalty: float = 1.0
    beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    beam_groups: int = 1
    diversity: float = 0.0
    renormalize: bool = False  # what the rules leave of a distribution sums to 1 again

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without what is at its default; ``rules_from_dict`` gives back an equal record."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) != f.default}
        return {name: _as_lists(value) for name, value in plain.items()}


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


# field -> its key in generation_config.json, and what its value must be
_KEYS: dict[str, tuple[str, type]] = {
    "start": ("decoder_start_token_id", int),
    "bos": ("bos_token_id", int),
    "pad": ("pad_token_id", int),
    "forced_first": ("forced_bos_token_id", int),
    "forced_last": ("forced_eos_token_id", int),
    "max_length": ("max_length", int),
    "max_new_tokens": ("max_new_tokens", int),
    "min_length": ("min_length", int),
    "min_new_tokens": ("min_new_tokens", int),
    "no_repeat_ngram": ("no_repeat_ngram_size", int),
    "no_repeat_source_ngram": ("encoder_no_repeat_ngram_size", int),
    "sample": ("do_sample", bool),
    "temperature": ("temperature", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "typical_p": ("typical_p", float),
    "penalty_alpha": ("penalty_alpha", float),
    "repetition_penalty": ("repetition_penalty", float),
    "beams": ("num_beams", int),
    "length_penalty": ("length_penalty", float),
    "early_stopping": ("early_stopping", bool),
    "beam_groups": ("num_beam_groups", int),
    "diversity": ("diversity_penalty", float),
    "renormalize": ("renormalize_logits", bool),
}
# what would change the text and is not followed -> where it is off
_UNHEEDED: dict[str, Any] = {
    "begin_suppress_tokens": [],
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": [],
    "forced_decoder_ids": [],
    "guidance_scale": 1.0,
    "sequence_bias": {},
    "stop_strings": [],
    "top_h": 1.0,
}
_IDS = ("start", "bos", "pad")


def read_rules(
    config: Mapping[str, Any],
    generation: Mapping[str, Any] | None,
    tokenizer: Tokenizer | None = None,
    *,
    ids: Mapping[str, int | list[int]],
    starts_with_pad: bool = False,
) -> DecodeRules:
    """The rules of a folder. ``generation``: generation_config.json, ``None`` where there is none.

    ``ids``: what the class that wrote the folder assumes; ``starts_with_pad``: whether its decoder begins so.

    Ids: the generation config's, else config.json's, else the class's. End ids: the union of all that is written. Other
    rules, forced ids among them: the generation config's alone where there is one, as in the reference library; a
    notice names those that are not followed. ``CheckpointError`` where a value is no id or number.
    """
    nested = config.get("text_config") or {}
    if not isinstance(nested, Mapping):
        raise CheckpointError(f"text_config: {nested!r} is not an object of settings.")
    own = {**_present(nested), **_present(config)}
    given = _present(generation or {})
    assumed = {key: value for key, value in ids.items() if key not in config}
    said = {**assumed, **own, **given}
    other = {**assumed, **own} if generation is None else given
    found: dict[str, Any] = {}
    for field, (key, expected) in _KEYS.items():
        value = _checked(key, (said if field in _IDS else other).get(key), expected)
        if value is not None:
            found[field] = value
    if other.get("force_bos_token_to_be_generated") and generation is None and "bos" in found:
        found["forced_first"] = found["bos"]  # BART's oldest word for it
    if "start" not in found and starts_with_pad and "pad" in found:
        found["start"] = found["pad"]
    if unheeded := [key for key, off in _UNHEEDED.items() if other.get(key, off) != off]:
        notice(f"rules: plait does not follow the checkpoint's {', '.join(unheeded)}; its text may differ for that.")
    written = [source["eos_token_id"] for source in (given, own) if "eos_token_id" in source]
    ends = [_id_list("eos_token_id", value) for value in written]
    if tokenizer is not None and tokenizer.eos is not None:
        ends.append((tokenizer.eos,))
    if not ends and "eos_token_id" in assumed:
        ends.append(_id_list("eos_token_id", assumed["eos_token_id"]))
    if tokenizer is not None:
        for field in ("bos", "pad"):
            if field not in found and getattr(tokenizer, field) is not None:
                found[field] = getattr(tokenizer, field)
    return DecodeRules(**found, end=_union(ends), banned=_banned(other))


def rules_from_gguf(metadata: Mapping[str, Any]) -> DecodeRules:
    """The rules in a GGUF header: the ids of its tokenizer; end of sequence, of turn and of message all end a row."""

    def token(name: str) -> int | None:
        return _checked(name, metadata.get(f"tokenizer.ggml.{name}_token_id"), int)

    ends = [token(name) for name in ("eos", "eot", "eom")]
    return DecodeRules(bos=token("bos"), pad=token("padding"), end=_union([(end,) for end in ends if end is not None]))


def rules_to_gguf(rules: DecodeRules) -> tuple[dict[str, int], tuple[str, ...]]:
    """The ids that a GGUF header has keys for, as ``rules_from_gguf`` reads them, and rules that it has none for."""
    ends = dict(zip(("eos", "eot", "eom"), rules.end, strict=False))
    ids = {"bos": rules.bos, "padding": rules.pad, **ends}
    said = {f"tokenizer.ggml.{name}_token_id": id for name, id in ids.items() if id is not None}
    read = rules_from_gguf(said)
    return said, tuple(f.name for f in dataclasses.fields(rules) if getattr(rules, f.name) != getattr(read, f.name))


def rules_from_dict(data: Mapping[str, Any]) -> DecodeRules:
    """Read ``DecodeRules.to_dict``; ``CheckpointError`` for an unknown name, and a value of the wrong kind."""
    known = {f.name for f in dataclasses.fields(DecodeRules)}
    if not isinstance(data, Mapping):
        raise CheckpointError(f"decode_rules: {data!r} is not an object of rules and their values.")
    for name in data:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"the rules are {', '.join(sorted(known))}."
            raise CheckpointError(f"decode_rules.{name}: there is no such rule; {hint}")
    return DecodeRules(**{name: _read_back(name, value) for name, value in data.items()})


def _read_back(rule: str, value: Any) -> Any:
    key = f"decode_rules.{rule}"
    if rule in ("end", "banned"):
        return _id_list(key, value) if rule == "end" else _id_lists(key, value)
    if value is None:
        raise CheckpointError(f"{key}: null is no value; leave the rule out.")
    return _checked(key, value, _KEYS[rule][1])


def generation_config(rules: DecodeRules, base: Mapping[str, Any] | None, before: DecodeRules) -> dict[str, Any]:
    """``rules`` as a generation_config.json: ``base`` with what changed since ``before`` was read from it."""
    written = dict(base or {})
    for field, (key, _) in _KEYS.items():
        if getattr(rules, field) != getattr(before, field):
            written[key] = getattr(rules, field)
    if rules.end != before.end:
        written["eos_token_id"] = rules.end[0] if len(rules.end) == 1 else list(rules.end) or None
    if rules.banned != before.banned:
        written["bad_words_ids"] = _as_lists(rules.banned) or None
        written.pop("suppress_tokens", None)
    return written


def _present(config: Mapping[str, Any]) -> dict[str, Any]:
    """v5 files write null for 'not set'."""
    return {key: value for key, value in config.items() if value is not None}


def _checked(key: str, value: Any, expected: type) -> Any:
    """A value of the type that its key has; ``None`` stays, and -1 is an id's way to say none."""
    if value is None or (key.endswith("early_stopping") and value == "never"):
        return value
    if isinstance(value, list) and len(value) == 1 and key.endswith("token_id"):
        value = value[0]
    kinds = (int, float) if expected is float else (expected,)
    if not isinstance(value, kinds) or (expected is not bool and isinstance(value, bool)):
        kind = {int: "a whole number", float: "a number", bool: "true or false"}[expected]
        raise CheckpointError(f"{key}: {value!r} is not {kind}.")
    return None if key.endswith("token_id") and value == -1 else value


def _id_list(key: str, value: Any) -> tuple[int, ...]:
    """One id or a list of them."""
    items: list[Any] = value if isinstance(value, list) else [value]
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        raise CheckpointError(f"{key}: {value!r} is neither a token id nor a list of them.")
    return tuple(item for item in items if item >= 0)


def _id_lists(key: str, value: Any) -> tuple[tuple[int, ...], ...]:
    """A list of lists of ids."""
    if not isinstance(value, list):
        raise CheckpointError(f"{key}: {value!r} is not a list of lists of token ids.")
    items: list[Any] = value
    return tuple(ids for item in items if (ids := _id_list(key, item)))


def _union(groups: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))


def _banned(config: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    sequences = _id_lists("bad_words_ids", config.get("bad_words_ids", []))
    single = [(item,) for item in _id_list("suppress_tokens", config.get("suppress_tokens", []))]
    return tuple(dict.fromkeys(sequence for sequence in [*sequences, *single] if sequence))
