from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch

from plait.checkpoint import CheckpointError, load, open_folder
from tests.checkpoint.making import llama_tensors, same_tensors, write_config


class _Marks:
    """Unpickling it writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return _mark, (str(self.marker), "ran")


def _mark(path: str, text: str) -> None:
    Path(path).write_text(text)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("index", [False, True])
def test_ld20_a_pickle_that_would_run_code_leaves_no_marker(
    tmp_path: Path, zipped: bool, allowed: bool, index: bool
) -> None:
    marker, folder = tmp_path / "marker", tmp_path / "folder"
    write_config(folder)
    file = folder / ("pytorch_model-00001-of-00001.bin" if index else "pytorch_model.bin")
    torch.save({**llama_tensors(), "x": _Marks(marker)}, file, _use_new_zipfile_serialization=zipped)
    if index:
        places = {name: file.name for name in llama_tensors()}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    message = "not a file of tensors alone, so it is not read" if allowed else "load with pickle=True"
    with pytest.raises(CheckpointError, match=message):
        load(folder, pickle=allowed)
    assert not marker.exists()
    torch.load(file, weights_only=False)
    assert marker.exists(), "the file of this test would have run code"


def test_ld20_a_bare_pickle_leaves_no_marker(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    write_config(tmp_path)
    (tmp_path / "model.bin").write_bytes(pickle.dumps(_Marks(marker), protocol=2))
    for allowed in (False, True):
        with pytest.raises(CheckpointError):
            load(tmp_path / "model.bin", pickle=allowed)
    assert not marker.exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_alone_are_read_on_request(tmp_path: Path, zipped: bool) -> None:
    write_config(tmp_path)
    tensors = llama_tensors()
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    source = open_folder(tmp_path, pickle=True)
    assert same_tensors({name: source.read(name) for name in source.names}, tensors)
    assert source.stored_type("model.norm.weight") == "F32"
    assert load(tmp_path, pickle=True).architecture.d_model == 16


def test_a_list_is_no_checkpoint(tmp_path: Path) -> None:
    torch.save([torch.ones(2)], tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="something else than named tensors"):
        open_folder(tmp_path, pickle=True)
