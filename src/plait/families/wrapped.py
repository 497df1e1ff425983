"""A text model inside a wrapper, as a family: its own family reads and writes it, under the wrapper's names.

What is around the text model, settings and tensors, is kept as it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.architecture import Architecture
from plait.families.binding import Binding
from plait.families.errors import FamilyError
from plait.families.family import Family
from plait.families.heads import NESTED, TIE_KEY, class_names
from plait.families.layout import Equal, Layout
from plait.families.settings import Reading
from plait.families.wrappers import MROPE, Wrapper

if TYPE_CHECKING:
    from torch import Tensor

ROTATIONS = ("rope_parameters", "rope_scaling")
QUANTISED = ("quantization_config", "compression_config")
AROUND = re.compile(r"(image|video|vision|audio)_\w+")  # settings of the rest, where one config has all


@dataclass(frozen=True, eq=False)
class Wrapped:
    """``family`` inside the ``wrapper`` of that model type; the same interface as ``Family``."""

    name: str
    wrapper: Wrapper
    family: Family

    @property
    def ids(self) -> Mapping[str, Any]:
        """Of the text model's class."""
        return self.family.ids

    @property
    def starts_with_pad(self) -> bool:
        """As the text model."""
        return self.family.starts_with_pad

    @property
    def tokenizer(self) -> str | None:
        """As the text model."""
        return self.family.tokenizer

    def said(self, config: Mapping[str, Any], kept: int) -> str:
        """What a reader of such a file may want to know; ``kept``: how many tensors are not the text model's."""
        remarks = [self.wrapper.remark] if self.wrapper.remark else []
        left = self.family.keys & self.wrapper.fixed.keys()
        if {"logit_scale", "logits_scaling"} & left:
            remarks.append("its logits are not scaled, as the class around it leaves them")
        if (
            "final_logit_softcapping" in left
            and Reading(config.get(NESTED) or config, self.family.settings)["logit_softcap"]
        ):
            remarks.append("its logits are not capped, as the class around it leaves them")
        told = f"{self.name} is read as its text model, {self.family.name}; {kept} other tensors are kept aside"
        return "; ".join([f"{told}, and written in {self.name}'s own dialect alone", *remarks]) + "."

    # Settings

    def architecture(
        self, config: Mapping[str, Any], names: Collection[str] | None = None, equal: Equal | None = None
    ) -> Architecture:
        """The text model's, as ``Family.architecture`` gives it."""
        outer = self._names(names or ())
        inside = {there: here for here, there in outer.items()}
        same = _inside(equal, outer)
        return self.family.architecture(self._inner(config), list(inside.values()) if names else None, same)

    def config(self, architecture: Architecture, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """``base`` with another text model in it, where it is another; ``FamilyError`` without a base to put it in."""
        if not base:
            raise FamilyError(
                f"{self.name} wraps a text model, and there is nothing to wrap: write {self.family.name}."
            )
        inner = self._inner(base)
        new = self.family.config(architecture, inner)
        if new == inner:
            return dict(base)
        turned = self.family.architecture(inner).rope != architecture.rope
        changed = {
            key: value
            for key, value in new.items()
            if inner.get(key) != value
            and key not in ("architectures", "model_type")
            and (turned or key not in ROTATIONS)
        }
        flag = {TIE_KEY: architecture.tied} if architecture.head else {}
        nested = {**base[NESTED], **changed} if NESTED in base else None
        return {**base, NESTED: nested, **flag} if nested else {**base, **changed, **flag}

    def unread(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Settings of the text model that nothing reads; those around a nested one are about the rest."""
        inside = f"{NESTED}." if NESTED in config else ""
        return tuple(inside + name for name in self.family.unread(self._inner(config)))

    def _inner(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The text model's own config, in the words of its family."""
        told = config.get(NESTED)
        if told is None:
            told = {key: value for key, value in config.items() if not AROUND.fullmatch(key)}
        usual, fixed = self.wrapper.defaults(told), self.wrapper.fixed
        inner = dict(usual)
        for key, value in told.items():
            if key not in fixed and not (value is None and key in usual):
                inner[key] = value
        inner |= {key: value for key, value in fixed.items() if key in self.family.keys}
        inner |= {key: config[key] for key in QUANTISED if key in config}
        for key in ROTATIONS:
            if isinstance(inner.get(key), Mapping):
                inner[key] = _plain(inner[key])
        flags = [flag for flag in (config.get(TIE_KEY), told.get(TIE_KEY)) if flag is not None]
        inner = {key: value for key, value in inner.items() if key != TIE_KEY} | (
            {TIE_KEY: any(flags)} if flags else {}
        )
        return {**inner, "model_type": self.family.model_types[0], "architectures": self._classes(config)}

    def _classes(self, config: Mapping[str, Any]) -> list[str]:
        """The text model's class: with a head where the wrapper's has one."""
        classes: list[str] = []
        for name in class_names(config):
            if not name.endswith(("ForConditionalGeneration", "ForCausalLM", "Model")):
                raise FamilyError(f"architectures: plait has no head for {name}; it has those of the text model's.")
            classes.append(self.family.classes[1 if name.endswith("Model") else 0])
        return classes

    # Weights

    def bind(self, architecture: Architecture, names: Collection[str], equal: Equal | None = None) -> Binding:
        """As ``Family.bind``; what is not the text model's is kept aside."""
        outer = self._names(names)
        same = _inside(equal, outer)
        inner = self.family.bind(architecture, list(outer), same)
        layout = inner.layout
        aside = {*names} - {*outer.values()} | {outer[name] for name in layout.leftovers}
        return Binding(
            {n: (entry, tuple(outer[s] for s in stored), part) for n, (entry, stored, part) in inner.entries.items()},
            dataclasses.replace(
                layout,
                duplicates={outer[name]: meant for name, meant in layout.duplicates.items()},
                leftovers=tuple(sorted(aside)),
                outer=outer,
            ),
        )

    def export(
        self, architecture: Architecture, get: Callable[[str], Tensor], layout: Layout | None = None
    ) -> Iterator[tuple[str, Tensor]]:
        """As ``Family.export``; ``layout`` has the names that the text model's tensors have in the wrapper."""
        return self.family.export(architecture, get, layout)

    def _names(self, names: Collection[str]) -> dict[str, str]:
        """The text model's tensors among ``names``: as its family calls them -> as they are called here."""
        tower, prefix = self.wrapper.tower, self.family.prefix
        outside = {f"model.{tower}.": prefix, f"{tower}.model.": prefix, f"{tower}.": ""}
        found: dict[str, str] = {}
        for name in names:
            place = next((place for place in outside if name.startswith(place)), None)
            if place:
                found[outside[place] + name.removeprefix(place)] = name
            elif name in self.family.head_tensors:
                found[name] = name
        if not any(name.startswith(tuple(outside)) for name in names):
            found |= {name: name for name in names if name.startswith(prefix)}
        return found


def _inside(equal: Equal | None, outer: Mapping[str, str]) -> Equal | None:
    """``equal`` by the names that the text model's family has for the tensors."""
    return None if equal is None else lambda one, other: equal(outer.get(one, one), outer.get(other, other))


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """A rotation by several axes as the one it is where all count the same."""
    plain = {key: value for key, value in table.items() if key not in MROPE}
    return {key: "default" if value == "mrope" else value for key, value in plain.items()}


def wrapped(name: str, wrapper: Wrapper, config: Mapping[str, Any], family_for: Callable[..., Any]) -> Wrapped:
    """The family of a wrapper's config; ``family_for`` finds the text model's, and refuses those that plait has not."""
    told = config.get(NESTED) or {}
    text = told.get("model_type") or wrapper.text
    return Wrapped(name, wrapper, family_for({**told, "model_type": wrapper.renamed.get(text, text)}))
