"""The native dialect: canonical names, and a config.json that holds the whole Architecture. It can say anything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from plait.architecture import Architecture, Classification
from plait.checkpoint.dequantise import BLOCK_FORMATS
from plait.checkpoint.notice import CheckpointError
from plait.checkpoint.rules import DecodeRules, rules_from_dict
from plait.checkpoint.source import TensorSource
from plait.parameters import parameters
from plait.words import nearest

MODEL_TYPE = "plait"
FORMAT = 1
LABELS = ("id2label", "label2id", "problem_type")  # what a classification head's classes are, in any dialect
_KEYS = {"model_type", "plait_format", "architecture", "decode_rules", "family", "blocks", *LABELS}


@dataclass(frozen=True)
class NativeLayout:
    """Nothing is spelt otherwise, stored twice or left over."""

    duplicates: tuple[()] = ()
    leftovers: tuple[()] = ()


@dataclass(frozen=True)
class NativeBinding:
    """Every stored name is the canonical one."""

    layout: NativeLayout = NativeLayout()

    def read(self, name: str, get: Callable[[str], Tensor]) -> Tensor:
        """The tensor of that name."""
        return get(name)

    def rows(self, name: str) -> slice:
        """All of them, as they are."""
        return slice(None)

    def stored(self, name: str) -> str:
        """That name."""
        return name


class Native:
    """The dialect under the interface of a family."""

    name = MODEL_TYPE

    def architecture(
        self, config: Mapping[str, Any], names: Collection[str] | None, equal: Callable[[str, str], bool] | None
    ) -> Architecture:
        """The record in ``config``; ``CheckpointError`` for a format of another version."""
        version = config.get("plait_format")
        if version != FORMAT:
            raise CheckpointError(
                f"config.json: plait_format is {version!r}, and this plait reads {FORMAT}; a newer plait may read it."
            )
        unknown = sorted(set(config) - _KEYS)
        if unknown:
            near = nearest(unknown[0], _KEYS)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(sorted(_KEYS))}."
            raise CheckpointError(f"config.json: plait's format {FORMAT} has no key {unknown[0]!r}; {hint}")
        return Architecture.from_dict(config.get("architecture", {}))

    def config(self, architecture: Architecture, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The config.json for ``architecture``; rules are added by ``with_rules``."""
        base = base or {}
        names = ("family", *LABELS) if isinstance(architecture.head, Classification) else ("family",)
        kept = {name: base[name] for name in names if name in base}
        return {"model_type": MODEL_TYPE, "plait_format": FORMAT, **kept, "architecture": architecture.to_dict()}

    def unread(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Nothing: ``architecture`` has refused every key that is not known."""
        return ()

    def bind(self, architecture: Architecture, names: Collection[str], equal: Any = None) -> NativeBinding:
        """``CheckpointError`` unless the stored names are exactly the architecture's parameters."""
        expected = parameters(architecture)
        stored = set(names)
        missing = [name for name in expected if name not in stored]
        unknown = sorted(stored - set(expected))
        for what, found in (("are not stored", missing), ("have no place in the architecture", unknown)):
            if found:
                more = ", ..." if len(found) > 4 else ""
                raise CheckpointError(f"{len(found)} tensors {what}: {', '.join(found[:4])}{more}.")
        return NativeBinding()

    def export(
        self, architecture: Architecture, get: Callable[[str], Tensor], layout: Any = None
    ) -> Iterator[tuple[str, Tensor]]:
        """Every parameter under its own name."""
        for name in parameters(architecture):
            yield name, get(name)


NATIVE = Native()


def with_rules(config: dict[str, Any], rules: DecodeRules, family: str | None) -> dict[str, Any]:
    """``config`` with the decode rules, and the family that the checkpoint once came from."""
    hint = {"family": family} if family not in (None, MODEL_TYPE) else {}
    return {**config, **hint, "decode_rules": rules.to_dict()}


def with_blocks(config: dict[str, Any], kinds: Collection[str]) -> dict[str, Any]:
    """``config`` with the types of blocks that some matrices are in; which ones, the weights' own metadata say."""
    return {**config, "blocks": sorted(kinds)} if kinds else config


def check_blocks(config: Mapping[str, Any], source: TensorSource) -> None:
    """``CheckpointError`` unless the weights are in the blocks that ``config`` says: other tools drop metadata."""
    said = config.get("blocks", [])
    found = sorted({kind for kind in map(source.stored_type, source.names) if kind in BLOCK_FORMATS})
    if said != found:
        raise CheckpointError(
            f"config.json: blocks is {said!r}, but the weights are in {found!r}; the metadata 'plait.blocks' of the "
            "safetensors files names them, and is lost where another tool writes the files anew."
        )


def native_rules(config: Mapping[str, Any]) -> DecodeRules:
    """The decode rules in a native config.json."""
    return rules_from_dict(config.get("decode_rules", {}))
