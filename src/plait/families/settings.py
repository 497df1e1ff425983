"""A rule for one field of an Architecture: which foreign settings say it, read and written by one record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plait.architecture import ArchitectureError
from plait.checks import check_layers
from plait.families.errors import FamilyError
from plait.families.layout import Equal, Spelling
from plait.families.operations import SAME, Conversion, Fields


class Reading(Mapping[str, Any]):
    """The fields that a foreign config says, each worked out when first asked for: one may follow from another.

    ``spelling`` knows the tensors beside the config and ``equal`` compares two; ``None`` where there are none.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        rules: Mapping[str, Any],
        spelling: Spelling | None = None,
        equal: Equal | None = None,
    ) -> None:
        self.config, self.rules, self.spelling, self.equal = config, rules, spelling, equal
        self._found: dict[str, Any] = {}
        self._asked: list[str] = []  # the fields, in the order in which they were answered

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            rule, before = self.rules[name], len(self._asked)
            try:
                self._found[name] = rule.load(self) if isinstance(rule, Setting) else rule
            except (FamilyError, ArchitectureError):
                raise
            except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
                raise self._malformed(name, self._asked[before:]) from error
            if name in ("n_encoder_layers", "n_decoder_layers"):  # others may say something for each of them
                check_layers(name, self._found[name])
        self._asked.append(name)
        return self._found[name]

    def _malformed(self, name: str, asked: list[str]) -> FamilyError:
        """What to say where the settings behind a field, or those it ``asked`` for, are not what its rule expects."""
        rules = (self.rules[field] for field in dict.fromkeys([name, *asked]))
        keys = dict.fromkeys(key for rule in rules if isinstance(rule, Setting) for key in rule.keys)
        told = ", ".join(f"{key} {self.config[key]!r}" for key in keys if key in self.config) or ", ".join(keys)
        return FamilyError(
            f"{name}: it cannot be worked out from {told}; give values of the kind that the class takes."
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def has(self, name: str, unknown: bool) -> bool:
        """Whether a tensor of that usual name is in the file; ``unknown`` where no tensors are known."""
        return unknown if self.spelling is None else self.spelling.find(name) is not None

    def differ(self, first: str, second: str) -> bool:
        """Whether two tensors are both in the file, and not the same."""
        if self.spelling is None or self.equal is None:
            return False
        one, other = self.spelling.find(first), self.spelling.find(second)
        return one is not None and other is not None and not self.equal(one, other)

    @property
    def d_head(self) -> int:
        """The decoder's head width, also where it follows from other fields."""
        return self.get("d_head") or self["d_model"] // self["n_heads"]


@dataclass(frozen=True)
class Setting:
    """``load(reading) -> the field's value`` and ``save(value, fields) -> {foreign key: value}``.

    ``keys`` are all that it reads; ``unread(config)`` names what is inside them and not used.
    """

    keys: tuple[str, ...]
    load: Callable[[Reading], Any]
    save: Callable[[Any, Fields], dict[str, Any]]
    unread: Callable[[Mapping[str, Any]], list[str]] = lambda _: []


REQUIRED = object()


def key(name: str, default: Any = REQUIRED, conversion: Conversion = SAME, nullable: bool = False) -> Setting:
    """The field that one key says.

    ``default`` is the value (or a function of the other fields) that the family's own class takes where the key is
    absent or null; with ``nullable`` null is a value, ``None``.
    """

    def load(reading: Reading) -> Any:
        value = reading.config.get(name)
        if value is None:
            if nullable and name in reading.config:
                return None
            value = default(reading) if callable(default) else default
        if value is REQUIRED:
            raise FamilyError(f"{name}: this setting is missing, and the family has no default for it.")
        return None if value is None else conversion.load(value, reading)

    def save(value: Any, fields: Fields) -> dict[str, Any]:
        if value is None and not conversion.none:
            return {name: None} if nullable else {}
        return {name: conversion.save(value, fields)}

    return Setting((name,), load, save)


def stored(name: str, unknown: bool = True) -> Setting:
    """True where a tensor of that name is in the file: the weights say it, no setting does.

    ``unknown`` is what holds where a config is read without weights.
    """
    return Setting((), lambda reading: reading.has(name, unknown), lambda _, __: {})


def derived(load: Callable[[Fields], Any]) -> Setting:
    """A value that follows from other fields: no setting says it."""
    return Setting((), lambda reading: load(reading), lambda _, __: {})


def insisting(rule: Any, **values: Any) -> Setting:
    """``rule`` (or a value), where other settings must have these ``values`` if they are there at all; a list of
    them, one for each layer, is as good as one."""
    inner = rule if isinstance(rule, Setting) else derived(lambda _: rule)

    def load(reading: Reading) -> Any:
        for name, value in values.items():
            said = reading.config.get(name)
            if any(one != value for one in (said if isinstance(said, list) else [said]) if one is not None):
                raise FamilyError(
                    f"{name}: {said!r} asks for what plait does not have in this family; {value!r} does not."
                )
        return inner.load(reading)

    return Setting((*inner.keys, *values), load, inner.save, inner.unread)


def record(kind: type, **members: Any) -> Setting:
    """A nested record, each member by a rule of its own, or the value it always has."""
    rules = {name: member for name, member in members.items() if isinstance(member, Setting)}

    def load(reading: Reading) -> Any:
        return kind(**members | {name: rule.load(reading) for name, rule in rules.items()})

    def save(value: Any, fields: Fields) -> dict[str, Any]:
        if value is None:
            return {}
        return {k: v for name, rule in rules.items() for k, v in rule.save(getattr(value, name), fields).items()}

    return Setting(tuple(key for rule in rules.values() for key in rule.keys), load, save)


def merged(parts: Mapping[str, dict[str, Any]], family: str) -> dict[str, Any]:
    """The settings of all fields in one config; two fields that want one key to differ are refused."""
    config: dict[str, Any] = {}
    writer: dict[str, str] = {}
    for name, part in parts.items():
        for setting, value in part.items():
            before = config.get(setting)
            if isinstance(before, dict) and isinstance(value, dict):
                config[setting] = {**before, **value}
            elif setting in config and before != value:
                raise FamilyError(
                    f"{family} says {writer[setting]} and {name} with one setting, {setting}; here they ask for "
                    f"{before!r} and {value!r}."
                )
            else:
                config[setting] = value
            writer[setting] = name
    return config
