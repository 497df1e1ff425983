"""Which files of a folder make a checkpoint. An index decides, never a pattern of names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from plait.checkpoint.notice import CheckpointError, notice
from plait.checkpoint.source import TensorSource

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
RECIPE, MODEL = "recipe.toml", "model"  # of a run of training
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def open_folder(folder: Path, *, pickle: bool = False) -> TensorSource:
    """The weights in ``folder``: ``model.safetensors``, its shards by index, a lone ``.gguf``, or, if allowed, pickles.

    Raises ``CheckpointError`` where there are none, where an index names files that are missing or outside the folder,
    and for pickles without ``pickle=True``. Nothing is read yet but headers.
    """
    from plait.checkpoint.gguf import GGUFSource
    from plait.checkpoint.pickled import PickleSource, refuse_pickle
    from plait.checkpoint.safetensors import SafetensorsSource

    if (folder / WEIGHTS).exists():
        if (folder / INDEX).exists() and set(read_index(folder / INDEX).values()) != {WEIGHTS}:
            notice(f"{folder}: {WEIGHTS} is read; {INDEX}, which names other files, is not.")
        return SafetensorsSource([folder / WEIGHTS])
    if (folder / INDEX).exists():
        places = _placed(folder, INDEX)
        return SafetensorsSource(sorted(set(places.values())), places)
    for found in (folder / PICKLE_INDEX, folder / PICKLE):
        if found.exists() and not pickle:
            raise refuse_pickle(found)
    if (folder / PICKLE_INDEX).exists():
        return PickleSource(sorted(set(_placed(folder, PICKLE_INDEX).values())))
    if (folder / PICKLE).exists():
        return PickleSource([folder / PICKLE])
    match sorted(folder.glob("*.gguf")):
        case [single]:
            return GGUFSource(single)
        case []:
            looked_for = f"{WEIGHTS}, {INDEX} or a .gguf file is looked for"
            raise CheckpointError(f"{folder}: there are no weights here; {_of_run(folder) or looked_for}.")
        case several:
            names = ", ".join(path.name for path in several[:5])
            raise CheckpointError(
                f"{folder}: there are {len(several)} GGUF files here ({names}); name the one to load."
            )


def _of_run(folder: Path) -> str | None:
    """Where the model is, if the folder is that of a run of training."""
    if not (folder / RECIPE).exists():
        return None
    if has_weights(folder / MODEL):
        return f"this is the folder of a run, and its model is {folder / MODEL}"
    return "this is the folder of a run that has not come to its end; go on with it: plait train RECIPE --resume"


def has_weights(folder: Path, *, pickle: bool = False) -> bool:
    """Whether ``open_folder`` would find weights to read, of any kind that it may."""
    kinds = (WEIGHTS, INDEX, *((PICKLE, PICKLE_INDEX) if pickle else ()))
    return any((folder / name).exists() for name in kinds) or any(folder.glob("*.gguf"))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; ``CheckpointError`` where it is missing or something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: there is no such file.") from None
    except RecursionError:
        raise CheckpointError(f"{path}: its JSON is nested too deeply to be read; a few levels are usual.") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON ({error}).") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: not a JSON object.")
    return value


def read_index(path: Path) -> dict[str, str]:
    """An index's ``weight_map``: stored name -> file name."""
    places = read_json(path).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(value, str) for value in places.values()):
        raise CheckpointError(f"{path}: it has no 'weight_map' from tensor names to file names.")
    return places


def inside(folder: Path, name: str) -> Path:
    """``folder / name``, where that stays in the folder: a file can name ``../x``, and must not get it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.parts:
        raise CheckpointError(f"{folder}: the name {name!r} leads out of the folder; only files inside it are read.")
    return folder / path


def _placed(folder: Path, index: str) -> Mapping[str, Path]:
    names = read_index(folder / index)
    files = {file: inside(folder, file) for file in sorted(set(names.values()))}
    missing = [file for file, path in files.items() if not path.is_file()]
    if missing:
        raise CheckpointError(
            f"{folder}: {index} names {len(files)} files, {len(missing)} of them missing: {', '.join(missing)}."
        )
    return {name: files[file] for name, file in names.items()}


# Files beside the weights that loading reads. Beneath a module list, one folder down counts too.
CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
SMALL_FILES = frozenset(
    {
        CONFIG,
        GENERATION_CONFIG,
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.json",
        "chat_template.jinja",
        "vocab.json",
        "target_vocab.json",
        "vocab.txt",
        "merges.txt",
        "modules.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    }
)
_SMALL_ENDINGS = (".model", ".spm")  # sentencepiece's
_TEMPLATES = "additional_chat_templates"


def is_small_file(name: str, *, nested: bool = False) -> bool:
    """Whether a file of that name, relative to its checkpoint's folder, describes the checkpoint."""
    *folders, file = name.split("/")
    if folders[-1:] == [_TEMPLATES]:
        return len(folders) <= nested + 1 and file.endswith(".jinja")
    return len(folders) <= nested and (file in SMALL_FILES or file.endswith(_SMALL_ENDINGS))


def small_files(folder: Path) -> set[str]:
    """The paths in ``folder`` of the files there that describe a checkpoint."""
    found = (path.relative_to(folder).as_posix() for pattern in ("*", "*/*") for path in folder.glob(pattern))
    return {name for name in found if is_small_file(name)}
