"""Sentence-transformers folders: how token states become one vector, as ``modules.json`` says it.

The module list is data here: a transformer, a pooling, perhaps a normalisation. Whatever else it names is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.architecture import Pooling
from plait.checkpoint.folder import inside, read_json
from plait.checkpoint.notice import CheckpointError

MODULES = "modules.json"
_SETTINGS = "sentence_bert_config.json"
_BESIDE = (MODULES, "config_sentence_transformers.json")
_FLAGS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_TYPE, _NORMALIZE, _LENGTH = "pooling_type", "plait.pooling.normalize", "plait.pooling.max_length"  # in GGUF
_NUMBERED: dict[int, Pooling] = {1: "mean", 2: "cls", 3: "last"}  # llama.cpp's
_WORDS: dict[str, Pooling] = {"cls": "cls", "mean": "mean", "lasttoken": "last"}


@dataclass(frozen=True, kw_only=True)
class SentencePooling:
    """How an embedding is made: from which token states, whether at length 1, from how many tokens at most."""

    pooling: Pooling
    normalize: bool = False
    max_length: int | None = None


@dataclass(frozen=True, kw_only=True)
class SentenceFolder:
    """Where in the folder the transformer lies, the pooling, and the files that said so: path -> bytes."""

    inner: str
    pooling: SentencePooling
    files: Mapping[str, bytes]


def read_sentence_folder(folder: Path) -> SentenceFolder | None:
    """``None`` where there is no module list; ``CheckpointError`` for modules and poolings that plait does not have."""
    if not (folder / MODULES).exists():
        return None
    inner, mode, normalize = "", None, False
    files = {name: folder / name for name in _BESIDE if (folder / name).exists()}
    for module in _read_modules(folder / MODULES):
        kind, path = module["type"].rsplit(".", 1)[-1], module["path"]
        place = inside(folder, path) if path else folder
        if kind == "Transformer":
            inner = path
        elif kind == "Pooling":
            files[f"{path}/config.json"] = place / "config.json"
            mode = _mode(place / "config.json")
        elif kind == "Normalize":
            normalize = True
        else:
            raise CheckpointError(
                f"{folder / MODULES}: plait has no module {kind!r} (it has Transformer, Pooling, Normalize)."
            )
    if mode is None:
        raise CheckpointError(f"{folder / MODULES}: it lists no Pooling, so texts have no vector.")
    settings = folder / inner / _SETTINGS
    length = read_json(settings).get("max_seq_length") if settings.exists() else None
    if settings.exists():
        files[settings.relative_to(folder).as_posix()] = settings
    kept = {name: path.read_bytes() for name, path in files.items()}
    pooling = SentencePooling(pooling=mode, normalize=normalize, max_length=length)
    return SentenceFolder(inner=inner, pooling=pooling, files=kept)


def sentence_files(pooling: SentencePooling) -> dict[str, bytes]:
    """The files that say ``pooling``, for a folder that had none."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if pooling.normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    flags = {flag: mode == pooling.pooling for flag, mode in _FLAGS.items()}
    written: dict[str, Any] = {MODULES: modules, "1_Pooling/config.json": flags}
    if pooling.max_length is not None:
        written[_SETTINGS] = {"max_seq_length": pooling.max_length}
    return {name: json.dumps(value, indent=2).encode() for name, value in written.items()}


def pooling_from_gguf(metadata: Mapping[str, Any], arch: str) -> SentencePooling | None:
    """What a GGUF header says; where it does not, vectors get length 1, as llama.cpp's tools make them."""
    number = metadata.get(f"{arch}.{_TYPE}", 0)
    if not isinstance(number, int):
        raise CheckpointError(f"{arch}.{_TYPE}: {number!r} is no kind of pooling; give a number from 0 to 4.")
    mode = _NUMBERED.get(number)
    if mode is None:
        return None
    normalize, length = metadata.get(_NORMALIZE, True), metadata.get(_LENGTH)
    return SentencePooling(pooling=mode, normalize=bool(normalize), max_length=length)


def pooling_to_gguf(pooling: SentencePooling | None, arch: str) -> dict[str, Any]:
    """The metadata that ``pooling_from_gguf`` reads; what llama.cpp has no keys for stands under plait's own."""
    if pooling is None:
        return {}
    length = {_LENGTH: pooling.max_length} if pooling.max_length is not None else {}
    number = next(number for number, mode in _NUMBERED.items() if mode == pooling.pooling)
    return {f"{arch}.{_TYPE}": number, _NORMALIZE: pooling.normalize, **length}


def _read_modules(path: Path) -> list[dict[str, str]]:
    try:
        modules: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        modules = None
    if not isinstance(modules, list) or not all(
        isinstance(m, dict) and isinstance(m.get("type"), str) and isinstance(m.get("path"), str) for m in modules
    ):
        raise CheckpointError(f"{path}: not a list of modules with a 'type' and a 'path'.")
    return modules


def _mode(path: Path) -> Pooling:
    config = read_json(path)
    chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    if isinstance(config.get("pooling_mode"), str):
        chosen = [config["pooling_mode"]]
    mode = (_FLAGS.get(chosen[0]) or _WORDS.get(chosen[0])) if len(chosen) == 1 else None
    if mode is None:
        raise CheckpointError(
            f"{path}: plait pools by one of {', '.join(_WORDS)}, not by {' and '.join(chosen) or 'nothing'}."
        )
    return mode
