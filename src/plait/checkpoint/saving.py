"""Save: a Checkpoint to a folder, in the dialect it came from, in another that can say it, or in the native one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from plait.checkpoint.blocks import Blocks
from plait.checkpoint.folder import (
    CONFIG,
    GENERATION_CONFIG,
    INDEX,
    WEIGHTS,
    inside,
    read_index,
    small_files,
)
from plait.checkpoint.native import LABELS, NATIVE, with_blocks, with_rules
from plait.checkpoint.notice import CheckpointError, notice
from plait.checkpoint.pooling import read_sentence_folder, sentence_files
from plait.checkpoint.record import Checkpoint, Layout
from plait.checkpoint.replacing import whole_folder
from plait.checkpoint.restating import restated
from plait.checkpoint.rules import DecodeRules, generation_config
from plait.checkpoint.safetensors import BLOCKS
from plait.checkpoint.scaled import ScaledSource
from plait.checkpoint.shards import write_shards
from plait.checkpoint.to_gguf import GGUF, save_gguf, tell_lost
from plait.words import nearest

HF = "hf"


def save(
    checkpoint: Checkpoint,
    folder: str | os.PathLike[str],
    dialect: str | None = None,
    overwrite: bool = False,
    *,
    max_shard_bytes: int = 5 * 10**9,
    type: str | None = None,
    beside: Mapping[str, bytes] = MappingProxyType({}),
) -> Path:
    """Write a checkpoint to ``folder``, whole or not at all; returns the folder.

    What was loaded from unquantised files and not changed is written back with the same bytes in every tensor, under
    the names it had, with everything that came along. float16 that was read as float32 goes back to float16, unless the
    model was moved to a third type; a type that was asked for when loading is the type that is written. Matrices in
    blocks (a GGUF file's, ``quantise``'s) keep them in the native dialect, and are float32 in others.

    Args:
        checkpoint: what to write.
        folder: must not exist or be empty, unless ``overwrite``.
        dialect: ``None`` is the family it came from if that can say it, else ``"plait"``, the native dialect, which
            says anything; ``"hf"`` is its family, or the first that can say it; or a family's name; or ``"gguf"``, one
            file for llama.cpp (``folder`` is its name, which ends in ``.gguf``).
        overwrite: replace the checkpoint that lies in ``folder``. Files that its own index does not name stay.
        max_shard_bytes: weights beyond this are spread over several files, with an index.
        type: of the matrices in a GGUF file, ``"F32"``, ``"F16"``, ``"BF16"`` or ``"Q8_0"``; ``None`` as they are.
        beside: more files of the folder, by name.

    Raises ``CheckpointError`` for an existing folder, ``FamilyError`` where a dialect cannot say the architecture (it
    names the knob), and what the disk raises; the folder is then as it was.
    """
    target = Path(folder).expanduser()
    if max_shard_bytes < 1:
        raise CheckpointError(f"max_shard_bytes: {max_shard_bytes} holds nothing; give a positive number of bytes.")
    if dialect == GGUF:
        if beside:
            raise CheckpointError("beside: a GGUF file has no folder for other files.")
        return save_gguf(checkpoint, target, type, overwrite)
    if type is not None:
        raise CheckpointError(f"type: {type!r} is for dialect='gguf'; other dialects keep the types there are.")
    check_target(target, overwrite)
    family, config, same = choose_dialect(checkpoint, dialect)
    written = _Writing(checkpoint, family, same)
    if not same:
        tell_lost(checkpoint.layout, target, f"dialect {family.name!r}")
    if isinstance(checkpoint.layout.source, ScaledSource):
        source = checkpoint.layout.source
        notice(f"{target}: weights that were {source.method} are written as {' and '.join(source.types)}.")
    with whole_folder(target, replaces=_own_files(target) if overwrite else ()) as new:
        inner, modules = _sentence(checkpoint)
        place = new / inner
        place.mkdir(parents=True, exist_ok=True)
        write_shards(place, written.tensors(), written.metadata, max_shard_bytes)
        kinds = {blocks.type for blocks in written.blocks.values()}
        texts = _texts(checkpoint, family, _with_type(config, written, same), kinds)
        if checkpoint.tokenizer is not None:
            checkpoint.tokenizer.save(place)
        for name, value in texts.items():
            (place / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        for name, data in {**modules, **beside}.items():
            inside(new, name).parent.mkdir(parents=True, exist_ok=True)
            inside(new, name).write_bytes(data)
    return target


def check_target(target: Path, overwrite: bool) -> None:
    """``CheckpointError`` where ``save`` would refuse to write, for those who have long work to do first."""
    if not target.exists():
        return
    if not target.is_dir():
        raise CheckpointError(f"{target}: there is a file of this name; save to a folder.")
    if not any(target.iterdir()):
        return
    if not overwrite:
        raise CheckpointError(f"{target}: it exists and is not empty; choose another folder, or say overwrite=True.")
    if not any((target / name).exists() for name in (CONFIG, "modules.json")):
        raise CheckpointError(
            f"{target}: it holds other things than a checkpoint (no {CONFIG}), and is not overwritten."
        )


def _own_files(folder: Path) -> set[str]:
    """The paths in ``folder`` that make up its checkpoint: what describes it, and the weights that its index names."""
    try:
        sentence = read_sentence_folder(folder)
    except ValueError:
        sentence = None
    own = set(sentence.files) if sentence else set[str]()
    for place in {"", sentence.inner if sentence else ""}:
        names = small_files(folder / place) | {WEIGHTS, INDEX}
        try:
            names |= set(read_index(folder / place / INDEX).values())
        except CheckpointError:  # no index, or none that can be read
            pass
        own |= {f"{place}/{name}" if place else name for name in names}
    return own


def choose_dialect(checkpoint: Checkpoint, dialect: str | None) -> tuple[Any, dict[str, Any], bool]:
    """The family to write in, its config, and whether the checkpoint came from it, in these names."""
    from plait.families import FAMILIES, WRAPPERS, FamilyError, family_for

    layout, architecture = checkpoint.layout, checkpoint.architecture
    by_name: dict[str, Any] = {NATIVE.name: NATIVE, **{family.name: family for family in FAMILIES}}
    if layout.family in WRAPPERS and layout.config:
        by_name[layout.family] = family_for(layout.config)
    origin = layout.family if layout.family in by_name else None

    def wrote(name: str) -> tuple[Any, dict[str, Any], bool]:
        own = name == layout.family and not layout.gguf
        said = restated(architecture, by_name[name]).architecture
        labels = {key: layout.config[key] for key in LABELS if key in layout.config} if layout.config else {}
        config = by_name[name].config(said, layout.config if own else labels)
        return by_name[name], dict(config), own

    if dialect is None:
        try:
            return wrote(origin or NATIVE.name)
        except FamilyError as error:
            notice(f"{error} It is written in plait's own dialect.")
            return wrote(NATIVE.name)
    if dialect == HF:
        hint = (layout.config or {}).get("family") if origin == NATIVE.name else origin
        if hint in by_name and hint != NATIVE.name:
            return wrote(hint)
        return _first_that_can(architecture, [family.name for family in FAMILIES], wrote)
    check_dialect(dialect)
    return wrote(dialect)


def check_dialect(dialect: str) -> None:
    """``CheckpointError`` for a word that ``save`` does not know, with the nearest it does."""
    from plait.families import FAMILIES

    known = [HF, GGUF, NATIVE.name, *(family.name for family in FAMILIES)]
    if dialect not in known:
        near = nearest(dialect, known)
        hint = f" Did you mean {near!r}?" if near else ""
        raise CheckpointError(f"dialect: {dialect!r} is not one of {', '.join(known)}.{hint}")


def _first_that_can(architecture: Any, names: list[str], wrote: Any) -> tuple[Any, dict[str, Any], bool]:
    from plait.families import FamilyError

    reasons: list[str] = []
    for name in names:
        try:
            return wrote(name)
        except FamilyError as error:
            reasons.append(str(error))
    raise FamilyError(f"no family can say this architecture; save it with dialect='plait'. {' '.join(reasons[:3])}")


@dataclass
class _Writing:
    """The tensors of a checkpoint in a family's spelling, in the types they are stored in."""

    checkpoint: Checkpoint
    family: Any
    same: bool

    def __post_init__(self) -> None:
        self.weights = self.checkpoint.weights()
        self.said = restated(self.checkpoint.architecture, self.family)

    @property
    def layout(self) -> Layout:
        """Where it came from."""
        return self.checkpoint.layout

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """Names that the files declared to stand for others, instead of storing them, and that still equal them."""
        declared = getattr(self.layout.source, "aliases", {}) if self.same else {}
        if not declared:
            return {}
        meant = {*declared, *declared.values()}
        now = {name: tensor for name, tensor in self._exported() if name in meant}
        return {a: name for a, name in declared.items() if name not in now or a not in now or now[a].equal(now[name])}

    @property
    def metadata(self) -> dict[str, str]:
        """For the safetensors header."""
        if self.blocks:  # alone: the library writes several keys in another order each time
            return {BLOCKS: json.dumps({name: blocks.type for name, blocks in self.blocks.items()})}
        kept = dict(self.layout.source.metadata) if self.aliases and self.layout.source else {}
        gone = getattr(self.layout.source, "aliases", {}).keys() - self.aliases.keys()
        return {**{key: value for key, value in kept.items() if key not in gone}, "format": "pt"}

    @cached_property
    def blocks(self) -> Mapping[str, Blocks]:
        """Matrices that the native dialect keeps in the blocks that they are in and that the model still says."""
        if self.family is not NATIVE or not self.layout.keeps_blocks:
            return {}
        found = {name: self.weights.blocks(name) for name in self.weights.names}
        return {name: blocks for name, blocks in found.items() if blocks is not None}

    def _exported(self) -> Iterator[tuple[str, Tensor]]:
        return self.family.export(self.said.architecture, self.get, self.layout.binding if self.same else None)

    def get(self, name: str) -> Tensor:
        """A parameter in its stored type, unless the model has been moved to another since it was loaded."""
        if name in self.blocks:
            return self.blocks[name].data.view(*self.weights.shape(name)[:-1], -1)
        value = self.weights.read(name)
        return self.said.apply(name, value.to(self.layout.kept(name, value.dtype)))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Everything to write: parameters, their duplicates, and what came along unused."""
        binding = self.layout.binding if self.same else None
        for name, tensor in self._exported():
            if name not in self.aliases:
                yield name, tensor
        if binding is not None and self.layout.source is not None:
            for name in binding.leftovers:
                if name not in self.aliases:
                    yield name, self.layout.source.read(name)

    def types(self) -> set[torch.dtype]:
        """The types that parameters are written in."""
        return {self.get(name).dtype for name in self.weights.names}

    def types_before(self) -> set[torch.dtype]:
        """The types that they were stored in."""
        return {stored for _, stored in self.layout.types.values()}


def _with_type(config: dict[str, Any], written: _Writing, same: bool) -> dict[str, Any]:
    """``config`` naming the type of the weights, where it is another than the files had."""
    if written.family is NATIVE or (same and written.types() == written.types_before()):
        return config
    types = written.types()
    key = "torch_dtype" if "torch_dtype" in config else "dtype"
    return {**config, key: str(types.pop()).removeprefix("torch.")} if len(types) == 1 else config


def _texts(checkpoint: Checkpoint, family: Any, config: dict[str, Any], kinds: set[str]) -> dict[str, Any]:
    """config.json and generation_config.json."""
    layout, rules = checkpoint.layout, checkpoint.rules
    if family is NATIVE:
        return {CONFIG: with_rules(with_blocks(config, kinds), rules, layout.family)}
    own = layout.family == family.name and not layout.gguf
    if own and rules == layout.rules:
        texts: dict[str, Any] = {CONFIG: config}
        if layout.generation_config is not None:
            texts[GENERATION_CONFIG] = layout.generation_config
        return texts
    # One generation_config.json is all that other readers look at: without an old one, every rule is written.
    base = layout.generation_config if own else None
    generation = generation_config(rules, base, layout.rules if base is not None else DecodeRules())
    ids = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    return {
        CONFIG: {**config, **{key: generation[key] for key in ids if key in generation}},
        GENERATION_CONFIG: generation,
    }


def _sentence(checkpoint: Checkpoint) -> tuple[str, Mapping[str, bytes]]:
    """Where the transformer goes, and the files that say so: its own, or new ones where its pooling was changed."""
    kept, pooling = checkpoint.layout.sentence, checkpoint.pooling
    if pooling is None:
        return "", {}
    return (kept.inner, kept.files) if kept is not None and kept.pooling == pooling else ("", sentence_files(pooling))
