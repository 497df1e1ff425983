from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from plait.checkpoint import CheckpointError, PlaitNotice, SafetensorsSource, TensorSource, load, open_folder
from tests.checkpoint.making import llama_tensors, same_tensors, write_llama, write_shards


def test_a_source_is_lazy_mapped_and_exact(tmp_path: Path) -> None:
    tensors = llama_tensors(dtype=torch.bfloat16)
    source = open_folder(write_llama(tmp_path, tensors))
    assert isinstance(source, TensorSource)
    assert same_tensors({name: source.read(name) for name in source.names}, tensors)
    name = source.names[0]
    assert source.stored_type(name) == "BF16"
    assert source.shape(name) == tuple(tensors[name].shape)
    assert source.read(name).data_ptr() == source.read(name).data_ptr(), "read twice, mapped once"
    assert bytes(source.raw(name)) == tensors[name].view(torch.uint8).numpy().tobytes()
    assert source.read(name, torch.float32).dtype == torch.float32


def test_shards_are_one_source(tmp_path: Path) -> None:
    tensors = llama_tensors()
    source = open_folder(write_shards(tmp_path, tensors))
    assert same_tensors({name: source.read(name) for name in source.names}, tensors)


def test_ld1_a_missing_shard_stops_before_building(tmp_path: Path) -> None:
    folder = write_shards(tmp_path)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names 3 files, 1 of them missing: model-00002-of-00003\.safetensors"):
        load(folder)
    (folder / "model-00001-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match="2 of them missing: model-00001-of-00003.safetensors, model-00002"):
        load(folder)


def test_ld1_a_shard_whose_entries_left_the_index_is_not_read_silently(tmp_path: Path) -> None:
    folder = write_shards(tmp_path)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    lost = [name for name, file in content["weight_map"].items() if file == "model-00002-of-00003.safetensors"]
    content["weight_map"] = {name: file for name, file in content["weight_map"].items() if name not in lost}
    index.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"^{len(lost)} .*of 21 .*have no tensor in the file"):
        load(folder)


def test_ld1_an_index_that_promises_what_a_shard_does_not_hold(tmp_path: Path) -> None:
    folder = write_shards(tmp_path)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.norm.weight"] = "model-00001-of-00003.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="the index places 'model.norm.weight' in this file, which does not"):
        load(folder)


@pytest.mark.parametrize("keep", [-4, 40, 4, 0])
def test_ld2_a_file_cut_short_is_refused_with_both_sizes(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(8), "b": torch.ones(8)}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:keep])
    with pytest.raises(CheckpointError) as caught:
        SafetensorsSource([path])
    size = len(whole) - 4 if keep < 0 else keep
    assert str(size) in str(caught.value)
    expected = {-4: str(len(whole)), 40: str(int.from_bytes(whole[:8], "little")), 4: "8 bytes", 0: "8 bytes"}[keep]
    assert expected in str(caught.value)


def test_ld2_bytes_after_the_last_tensor_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(8)}, path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"tail")
    with pytest.raises(CheckpointError, match=f"promises {size} bytes, the file has {size + 4}"):
        SafetensorsSource([path])


def test_ld2_a_git_lfs_pointer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 90868376\n"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=f"these {len(text)} bytes are a Git LFS pointer to a file of 90868376"):
        SafetensorsSource([path])


def test_ld2_an_absurd_header_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((2**40).to_bytes(8, "little") + b"{}" * 20)
    with pytest.raises(CheckpointError, match=f"should take {2**40} bytes, but the file has 48"):
        SafetensorsSource([path])


@pytest.mark.parametrize("header", [b"not json", b"[]", b'{"a":{"dtype":"F32"}}', b'{"a":3}'])
def test_ld2_a_header_that_is_none(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match="is not a safetensors header"):
        SafetensorsSource([path])


def test_ld2_a_shape_that_does_not_fit_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = b'{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    with pytest.raises(CheckpointError, match=r"tensor 'a' of shape \[3\] and type F32 does not fit its bytes 0 to 8"):
        SafetensorsSource([path])


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "a/../../b", "..\\b"])
def test_names_in_an_index_stay_inside_the_folder(tmp_path: Path, name: str) -> None:
    folder = write_shards(tmp_path / "inner")
    save_file(llama_tensors(), tmp_path / "secret.safetensors")
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"] = dict.fromkeys(content["weight_map"], name)
    index.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="leads out of the folder"):
        load(folder)


def test_ld14_a_stale_index_beside_a_single_file_is_said(tmp_path: Path) -> None:
    tensors = llama_tensors(seed=1)
    write_shards(tmp_path)
    write_llama(tmp_path, tensors)
    with pytest.warns(PlaitNotice, match=r"model\.safetensors is read; model\.safetensors\.index\.json"):
        source = open_folder(tmp_path)
    assert same_tensors({name: source.read(name) for name in source.names}, tensors)


def test_ld14_old_shards_beside_a_new_set_are_not_globbed(tmp_path: Path) -> None:
    write_shards(tmp_path, llama_tensors(seed=1), n=3)
    new = llama_tensors(seed=2)
    write_shards(tmp_path, new, n=2)  # its index replaces the old one; the three old shards stay
    assert len(list(tmp_path.glob("*.safetensors"))) == 5
    source = open_folder(tmp_path)
    assert same_tensors({name: source.read(name) for name in source.names}, new)


def test_an_empty_folder_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there are no weights here; model.safetensors"):
        open_folder(tmp_path)


def test_the_folder_of_a_run_says_where_its_model_is(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").touch()
    with pytest.raises(CheckpointError, match="a run that has not come to its end; go on with it"):
        open_folder(tmp_path)
    (tmp_path / "model").mkdir()
    write_shards(tmp_path / "model", n=2)
    with pytest.raises(CheckpointError, match=f"its model is {tmp_path / 'model'}"):
        open_folder(tmp_path)


def test_a_type_that_is_not_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(4, dtype=torch.float8_e5m2)}, path)
    with pytest.raises(CheckpointError, match="does not read F8_E5M2, the type of the tensor 'a'"):
        SafetensorsSource([path]).read("a")


def test_json_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    deep = ('{"a":' * 100_000 + "1" + "}" * 100_000).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(CheckpointError, match="is not a safetensors header"):
        SafetensorsSource([path])
    path.unlink()
    (tmp_path / "model.safetensors.index.json").write_bytes(deep)
    with pytest.raises(CheckpointError, match="nested too deeply"):
        open_folder(tmp_path)
