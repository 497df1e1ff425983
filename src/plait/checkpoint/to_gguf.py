"""A checkpoint as one GGUF file for llama.cpp: metadata, tokenizer, and tensors in the types that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from plait.checkpoint.blocks import Blocks, bytes_per_row
from plait.checkpoint.dequantise import BLOCK_FORMATS
from plait.checkpoint.gguf_file import Planned, write_gguf
from plait.checkpoint.notice import CheckpointError, notice
from plait.checkpoint.pooling import pooling_to_gguf
from plait.checkpoint.record import Checkpoint, Layout
from plait.checkpoint.replacing import whole_file
from plait.checkpoint.restating import Restated, restated
from plait.checkpoint.rounding import GRIDS, GROUP, round_to_blocks
from plait.checkpoint.rules import rules_to_gguf
from plait.checkpoint.source import PLAIN_TYPES, SPELLINGS, bytes_of
from plait.families.binding import Entry, few
from plait.families.errors import FamilyError
from plait.families.gguf_family import GGUFFamily

GGUF, ENDING = "gguf", ".gguf"
TYPES = ("F32", "F16", "BF16", *(kind for kind in GRIDS if kind == "Q8_0"))
# llama.cpp's numbers for what most matrices of a file are in (general.file_type)
_FILE_TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 12, "Q4_K": 15,
    "Q5_K": 17, "Q6_K": 18, "BF16": 32,
}  # fmt: skip
# Vectors, and tables that are added, stay in float32: llama.cpp adds nothing else
_TABLES = ("embedding.positions.weight", "embedding.types.weight")


def save_gguf(checkpoint: Checkpoint, path: Path, kind: str | None, overwrite: bool) -> Path:
    """``save`` for the dialect ``"gguf"``: a file, whole or not at all; ``kind`` as its ``type``."""
    if path.suffix != ENDING:
        raise CheckpointError(f"{path}: a GGUF file's name ends in {ENDING}; by that it is known when it is loaded.")
    if kind is not None and kind not in TYPES:
        raise CheckpointError(f"type: {kind!r} is not one of {', '.join(TYPES)}.")
    check_file(path, overwrite)
    family, metadata, said = _dialect(checkpoint)
    tensors = [Planned(name, (len(values),), "F32", _numbers(values)) for name, values in _lists(family, metadata)]
    writing = _Writing(checkpoint, said, kind)
    tensors += [writing.planned(entry) for entry in family.entries(said.architecture)]
    tell_lost(checkpoint.layout, path, "GGUF")
    settings = {key: value for key, value in metadata.items() if key not in family.reads}
    settings |= _beside(checkpoint, family, path.stem, [t for t in tensors if len(t.shape) == 2])
    for key in family.unheeded:
        if width := settings.get(f"{family.arch}.{key}"):
            notice(f"{path}: llama.cpp does not look at {family.arch}.{key}, {width}; longer texts get other answers.")
    if odd := [
        t.name for t in tensors if kind in GRIDS and len(t.shape) == 2 and t.type != kind and t.shape[1] % GROUP
    ]:
        notice(f"{path}: {few(odd)} stay in floats: their columns are no multiple of {GROUP}.")
    with whole_file(path) as new:
        write_gguf(new, settings, tensors)
    return path


def tell_lost(layout: Layout, path: Path, dialect: str) -> None:
    """A notice of what came along unused, and cannot in another dialect. GGUF's leftovers are read as settings."""
    left = () if layout.binding is None or layout.gguf else tuple(layout.binding.leftovers)
    if left:
        notice(f"{path}: {dialect} has no place for {few(left)}, which came along unused; not written.")


def check_file(path: Path, overwrite: bool) -> None:
    """``CheckpointError`` where ``save_gguf`` would refuse to write."""
    if not path.exists():
        return
    if path.is_dir():
        raise CheckpointError(f"{path}: there is a folder of this name; a GGUF checkpoint is a file.")
    if not overwrite:
        raise CheckpointError(f"{path}: it exists; choose another name, or say overwrite=True.")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise CheckpointError(f"{path}: it is no GGUF file, and is not overwritten.")


def _dialect(checkpoint: Checkpoint) -> tuple[GGUFFamily, dict[str, Any], Restated]:
    """The first of GGUF's dialects that can say the architecture, what it says, and the weights as it wants them."""
    from plait.families.gguf import gguf_families

    if checkpoint.architecture.experts is not None:
        raise FamilyError("GGUF cannot say experts: plait writes no mixture to GGUF; dialect='plait' can say it.")
    layout = checkpoint.layout
    origin = (layout.config or {}).get("general.architecture") or (layout.config or {}).get("family") or layout.family
    reasons: list[str] = []
    for family in gguf_families(origin):
        said = restated(checkpoint.architecture, family)
        try:
            return family, family.config(said.architecture), said
        except FamilyError as error:
            reasons.append(str(error))
    raise FamilyError(f"GGUF cannot say this architecture. {reasons[0]}")


def _lists(family: GGUFFamily, metadata: Mapping[str, Any]) -> list[tuple[str, list[float]]]:
    """The settings that are tensors in the file."""
    return [(name, metadata[name]) for name in family.reads if name in metadata]


def _numbers(values: list[float]) -> Callable[[], memoryview]:
    return lambda: bytes_of(torch.tensor(values, dtype=torch.float32))


def _beside(checkpoint: Checkpoint, family: GGUFFamily, name: str, matrices: list[Planned]) -> dict[str, Any]:
    """What a file says beside its architecture: types, pooling, tokenizer, decode rules."""
    from plait.text.to_gguf import greedy_tokens, leads_otherwise, tokenizer_to_gguf

    said: dict[str, Any] = {"general.name": name, **_kept(checkpoint)}
    counts = {kind: sum(t.size for t in matrices if t.type == kind) for kind in {t.type for t in matrices}}
    most = max(sorted(counts), key=counts.__getitem__)
    said |= {"general.file_type": _FILE_TYPES[most], "general.quantization_version": 2}
    said |= pooling_to_gguf(checkpoint.pooling, family.arch)
    if checkpoint.tokenizer is None:
        return said | {"tokenizer.ggml.model": "none"}
    ids, lost = rules_to_gguf(checkpoint.rules)
    if lost:
        notice(f"{name}{ENDING}: GGUF has no place for the decode rules {', '.join(lost)}; not written.")
    if leads_otherwise(checkpoint.tokenizer):
        notice(f"{name}{ENDING}: llama.cpp puts a space before texts that begin with one too, and cuts them otherwise.")
    if greedy := greedy_tokens(checkpoint.tokenizer):
        notice(f"{name}{ENDING}: GGUF has no word for spaces or words that {few(greedy)} take along; not written.")
    return said | tokenizer_to_gguf(checkpoint.tokenizer, checkpoint.architecture.vocab_size) | ids


def _kept(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a GGUF file that it came from says of itself: its name, licence, authors, ..."""
    config = checkpoint.layout.config if checkpoint.layout.gguf else None
    written = ("architecture", "alignment", "file_type", "quantization_version")
    own = {f"general.{key}" for key in written}
    return {k: v for k, v in (config or {}).items() if k.startswith("general.") and k not in own}


@dataclass
class _Writing:
    """The tensors of a checkpoint under GGUF's names, each read when it is asked for."""

    checkpoint: Checkpoint
    said: Restated
    kind: str | None  # of matrices; None: as they are

    def __post_init__(self) -> None:
        self.weights = self.checkpoint.weights()

    def planned(self, entry: Entry) -> Planned:
        """One tensor: its name, shape and type, and the way to its bytes."""
        name, shape, kind = entry.stored[0], entry.stored_shape, self._type(entry)
        blocks = kind in BLOCK_FORMATS and self.kind is None
        return Planned(name, shape, kind, lambda: self._blocks(entry, kind) if blocks else self._data(entry, kind))

    def _type(self, entry: Entry) -> str:
        columns = entry.stored_shape[-1]
        if len(entry.stored_shape) < 2 or entry.parts[0] in _TABLES:
            return "F32"
        if self.kind is not None:
            return self.kind if self.kind not in GRIDS or columns % GROUP == 0 else "F32"
        kinds = {self._stored(name) for name in entry.parts}
        whole = all(operation.by_rows for operation in entry.operations)
        kept = kinds <= {*PLAIN_TYPES} - {"F64"} or (whole and kinds <= BLOCK_FORMATS.keys())
        return kinds.pop() if len(kinds) == 1 and kept else "F32"

    def _stored(self, name: str) -> str:
        """The type a parameter is kept in, unless the model was moved to another since it was loaded."""
        if self.checkpoint.layout.keeps_blocks and (blocks := self.weights.blocks(name)):
            return blocks.type
        kind = self.weights.stored_type(name)
        if kind in BLOCK_FORMATS:
            return "F32"
        return SPELLINGS[self.checkpoint.layout.kept(name, PLAIN_TYPES[kind])]

    def _data(self, entry: Entry, kind: str) -> memoryview:
        values = entry.save([self.said.apply(name, self.weights.read(name, torch.float32)) for name in entry.parts])[0]
        if kind in GRIDS:
            return bytes_of(round_to_blocks(values, kind).data)
        data = values.to(PLAIN_TYPES[kind])
        if not torch.isfinite(data).all() and torch.isfinite(values).all():
            raise CheckpointError(f"{entry.stored[0]}: it holds numbers beyond what {kind} can; choose BF16 or F32.")
        return bytes_of(data)

    def _blocks(self, entry: Entry, kind: str) -> memoryview:
        """The blocks of the source, whole rows of them in the order that GGUF wants."""
        found = [self.weights.blocks(name) for name in entry.parts]
        rows = [blocks.data for blocks in found if isinstance(blocks, Blocks)]
        assert len(rows) == len(found) and rows[0].shape[1] == bytes_per_row(kind, entry.stored_shape[-1])
        return bytes_of(entry.save(rows)[0])
