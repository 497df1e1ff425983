"""Opening: the parts of a checkpoint, before a model is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.checkpoint.folder import CONFIG, GENERATION_CONFIG, has_weights, open_folder, read_json
from plait.checkpoint.native import MODEL_TYPE, NATIVE, check_blocks, native_rules
from plait.checkpoint.notice import CheckpointError, notice
from plait.checkpoint.pooling import SentenceFolder, SentencePooling, pooling_from_gguf, read_sentence_folder
from plait.checkpoint.rules import DecodeRules, read_rules, rules_from_gguf
from plait.checkpoint.scaled import plain
from plait.checkpoint.source import TensorSource

if TYPE_CHECKING:
    from plait.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Found:
    """Who spelt it, its config, what lies beside the weights, and the weights (``None`` where none are wanted)."""

    family: Any
    config: Mapping[str, Any]
    source: TensorSource | None
    tokenizer: Tokenizer | None
    rules: DecodeRules
    generation: Mapping[str, Any] | None = None
    sentence: SentenceFolder | None = None
    pooling: SentencePooling | None = None
    is_gguf: bool = False


def open_checkpoint(path: Path, *, pickle: bool, weights: bool = True) -> Found:
    """The parts of the checkpoint in a folder or file; headers are read and checked, tensors are not touched.

    Without ``weights``, a folder need not have any: its config.json is then believed.
    """
    from plait.checkpoint.gguf import GGUFSource
    from plait.checkpoint.pickled import PickleSource, refuse_pickle
    from plait.checkpoint.safetensors import SafetensorsSource

    if path.is_dir():
        sentence = read_sentence_folder(path)
        inner = path / sentence.inner if sentence else path
        if not weights and (inner / CONFIG).exists() and not has_weights(inner, pickle=pickle):
            return describe(inner, sentence=sentence)
        source = open_folder(inner, pickle=pickle)
        return _as_gguf(source) if isinstance(source, GGUFSource) else describe(inner, source, sentence)
    if path.suffix == ".gguf":
        return _as_gguf(GGUFSource(path))
    if path.suffix == ".safetensors":
        return describe(path.parent, SafetensorsSource([path]))
    if path.suffix in (".bin", ".pt", ".pth"):
        if not pickle:
            raise refuse_pickle(path)
        return describe(path.parent, PickleSource([path]))
    raise CheckpointError(f"{path}: plait loads folders, .safetensors and .gguf files, not this one.")


def check_config(path: Path) -> None:
    """``FamilyError`` or ``CheckpointError`` where this config.json alone tells that plait cannot read the weights."""
    from plait.families import family_for

    config = read_json(path)
    if config.get("model_type") not in (None, MODEL_TYPE):
        family_for(config)
        plain(config, None, path.parent)


def describe(folder: Path, source: TensorSource | None = None, sentence: SentenceFolder | None = None) -> Found:
    """What a folder says beside its weights: config, family, tokenizer, decode rules."""
    from plait.families import FAMILIES, family_for
    from plait.text import load_tokenizer, vocabularies

    config = read_json(folder / CONFIG)
    native = config.get("model_type") == MODEL_TYPE
    generation = read_json(folder / GENERATION_CONFIG) if (folder / GENERATION_CONFIG).exists() else None
    family = None if native else family_for(config)
    config, source = plain(config, source, folder)
    usual = family or next((f for f in FAMILIES if f.name == config.get("family")), None)
    tokenizer = load_tokenizer(folder, usual.tokenizer if usual else None)
    if tokenizer is None and (unread := vocabularies(folder)):
        notice(
            f"{folder}: its tokenizer ({', '.join(unread)}) is of no kind that plait reads; the model takes and gives "
            "token ids, and saving leaves those files behind."
        )
    if family is None:
        if source is not None:
            check_blocks(config, source)
        rules = native_rules(config)
    else:
        rules = read_rules(config, generation, tokenizer, ids=family.ids, starts_with_pad=family.starts_with_pad)
    return Found(
        family=family or NATIVE,
        config=config,
        source=source,
        tokenizer=tokenizer,
        rules=rules,
        generation=generation,
        sentence=sentence,
        pooling=sentence.pooling if sentence else None,
    )


def _as_gguf(source: Any) -> Found:
    from plait.families.gguf import gguf_family
    from plait.text import tokenizer_from_gguf

    metadata: Mapping[str, Any] = source.metadata
    if "general.architecture" not in metadata:
        raise CheckpointError(f"{source.path}: its header does not name an architecture (general.architecture).")
    family = gguf_family(metadata["general.architecture"])
    settings = {name: source.read(name).tolist() for name in family.reads if name in source.names}
    return Found(
        family=family,
        config={**metadata, **settings},
        source=source,
        tokenizer=tokenizer_from_gguf(metadata) if metadata.get("tokenizer.ggml.model", "none") != "none" else None,
        rules=rules_from_gguf(metadata),
        pooling=pooling_from_gguf(metadata, family.arch),
        is_gguf=True,
    )
