"""Writing safetensors: one file, or several with an index, without ever holding more than one file's tensors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from plait.checkpoint.folder import INDEX, WEIGHTS
from plait.checkpoint.notice import CheckpointError


def write_shards(folder: Path, tensors: Iterable[tuple[str, Tensor]], metadata: Mapping[str, str], limit: int) -> None:
    """Write named tensors: ``model.safetensors``, or parts of at most ``limit`` bytes each and their index."""
    parts: list[Path] = []
    places: dict[str, int] = {}
    total = size = 0
    pending: dict[str, Tensor] = {}

    def write() -> None:
        path = folder / f"part-{len(parts)}"
        write_tensors(path, pending, metadata)
        parts.append(path)
        pending.clear()

    for name, tensor in tensors:
        if name in places:
            raise CheckpointError(f"{folder}: two tensors would be written under the name {name!r}.")
        if pending and size + tensor.nbytes > limit:
            write()
            size = 0
        places[name] = len(parts)
        pending[name] = tensor
        size, total = size + tensor.nbytes, total + tensor.nbytes
    write()
    if len(parts) == 1:
        parts[0].rename(folder / WEIGHTS)
        return
    names = [f"model-{i:05}-of-{len(parts):05}.safetensors" for i in range(1, len(parts) + 1)]
    for part, name in zip(parts, names, strict=True):
        part.rename(folder / name)
    index = {"metadata": {"total_size": total}, "weight_map": {name: names[i] for name, i in sorted(places.items())}}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write one file. Raises ``OSError`` where the disk does not take it."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    seen: set[int] = set()
    whole: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        if tensor.data_ptr() in seen:  # stored under two names: two tensors in the file
            tensor = tensor.clone()
        seen.add(tensor.data_ptr())
        whole[name] = tensor
    path.touch()
    mode = path.stat().st_mode  # what the umask grants any new file; the library's own is its owner's alone
    try:
        save_file(whole, path, metadata=dict(metadata))
        path.chmod(mode)
    except SafetensorError as error:
        raise OSError(f"{path}: could not be written ({error}).") from None
