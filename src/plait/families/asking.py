"""Which fields of an architecture ask for a parameter: those that, said otherwise, would leave it away."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from plait.architecture import DERIVED, Architecture
from plait.parameters import parameters


def asking(architecture: Architecture, names: Collection[str]) -> list[str]:
    """The fields that ask for some of these parameters."""
    return [field for field, gone in _gone(architecture).items() if not gone.isdisjoint(names)]


@lru_cache(maxsize=8)
def _gone(architecture: Architecture) -> Mapping[str, frozenset[str]]:
    """For each field the parameters that are not there under another value of it."""
    here, gone = parameters(architecture).keys(), dict[str, frozenset[str]]()
    for field in dataclasses.fields(architecture):
        kept = [parameters(other).keys() for other in _otherwise(architecture, field)]
        gone[field.name] = frozenset(name for name in here if any(name not in there for there in kept))
    return gone


def _otherwise(architecture: Architecture, field: dataclasses.Field[Any]) -> Iterator[Architecture]:
    """The architecture with other values of one field alone, whether or not they go with the rest."""
    value = getattr(architecture, field.name)
    for other in (*_words(field.name), *_default(architecture, field, value)):
        if other != value:
            changed = object.__new__(type(architecture))
            for name in (f.name for f in dataclasses.fields(architecture)):
                object.__setattr__(changed, name, other if name == field.name else getattr(architecture, name))
            yield changed


@cache
def _words(field: str) -> tuple[str, ...]:
    """The values of a field that is one of some words."""
    kind = get_type_hints(Architecture)[field]
    kinds = (kind, *get_args(kind)) if get_origin(kind) is not Literal else (kind,)
    return tuple(word for part in kinds if get_origin(part) is Literal for word in get_args(part))


def _default(architecture: Architecture, field: dataclasses.Field[Any], value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if field.name in DERIVED:
        return [DERIVED[field.name](architecture)]
    return [] if field.default is dataclasses.MISSING else [field.default]
