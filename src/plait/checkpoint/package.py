"""Checkpoints inside installed packages: ``package:NAME`` is the one that is among the files of that package."""

from __future__ import annotations

from pathlib import Path

from plait.checkpoint.folder import CONFIG
from plait.checkpoint.notice import CheckpointError

PREFIX = "package:"


def inside_package(name: str) -> Path:
    """The GGUF file, or the folder with a config.json, among an installed package's files; nothing is imported."""
    import importlib.metadata

    try:
        files = importlib.metadata.files(name) or []
    except (importlib.metadata.PackageNotFoundError, ValueError):  # of an empty name the latter
        raise CheckpointError(f"package:{name}: there is no installed package of that name.") from None
    weights = {file for file in files if file.suffix == ".gguf"}
    folders = {file.parent for file in files if file.suffix == ".safetensors" and file.parent / CONFIG in files}
    found = sorted(Path(str(file.locate())) for file in weights) + sorted(
        Path(str(importlib.metadata.distribution(name).locate_file(folder))) for folder in folders
    )
    if len(found) != 1:
        listed = f"{len(found)}: {', '.join(map(str, found))}" if found else "none"
        raise CheckpointError(
            f"package:{name}: one GGUF file or folder with config.json is looked for; it has {listed}."
        )
    return found[0]
