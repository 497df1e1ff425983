"""GGUF files as checkpoints: the same model as the folder they were converted from, and saved as that family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.checkpoint import CheckpointError, DecodeRules, load, save
from tests.checkpoint.making import HEAD, llama_tensors, logits, read_folder, same_tensors, snapshot, write_llama

gguf = pytest.importorskip("gguf")

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "model.layers": "blk",
}  # fmt: skip


def spelled(name: str) -> str:
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def permuted(weight: Tensor, n_heads: int) -> Tensor:
    """llama.cpp's order of rows: pairs that are half a head apart become neighbours."""
    rows = weight.shape[0] // n_heads
    return weight.view(n_heads, 2, rows // 2, -1).transpose(1, 2).reshape(weight.shape)


def write_gguf(path: Path, tensors: dict[str, Tensor], kind: str = "F32", *, rows: str | None = None) -> Path:
    """``kind``: of the matrices; vectors are float32 in every GGUF file, unless ``rows`` says otherwise."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(16)
    writer.add_block_count(2)
    writer.add_feed_forward_length(24)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(40)
    writer.add_uint32("tokenizer.ggml.bos_token_id", 1)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 2)
    writer.add_uint32("tokenizer.ggml.eot_token_id", 5)
    for name, tensor in tensors.items():
        for part, heads in (("q_proj", 8), ("k_proj", 2)):
            if part in name:
                tensor = permuted(tensor, heads)
        type_ = gguf.GGMLQuantizationType[kind if tensor.ndim > 1 else rows or "F32"]
        writer.add_tensor(spelled(name), gguf.quants.quantize(tensor.numpy(), type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_is_the_model_it_was_converted_from(tmp_path: Path, tied: bool) -> None:
    tensors = llama_tensors(head=not tied)
    expected = load(write_llama(tmp_path / "a", tensors, tie_word_embeddings=tied))
    checkpoint = load(write_gguf(tmp_path / "x.gguf", tensors))
    assert checkpoint.architecture == expected.architecture
    assert checkpoint.rules == DecodeRules(bos=1, end=(2, 5))
    assert same_tensors(checkpoint.model.state_dict(), expected.model.state_dict())
    assert torch.equal(logits(checkpoint), logits(expected))
    folder = save(checkpoint, tmp_path / "b")
    assert same_tensors(read_folder(folder), tensors)
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["eos_token_id"]) == ("llama", [2, 5])
    again = load(folder)
    assert (again.architecture, again.rules) == (checkpoint.architecture, checkpoint.rules)
    native = load(save(checkpoint, tmp_path / "c", dialect="plait"))
    assert torch.equal(logits(native), logits(checkpoint))
    assert same_tensors(read_folder(save(native, tmp_path / "d", dialect="hf")), tensors)


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", llama_tensors())
    assert torch.equal(logits(load(tmp_path)), logits(load(tmp_path / "x.gguf")))
    write_gguf(tmp_path / "y.gguf", llama_tensors())
    with pytest.raises(
        CheckpointError, match=r"there are 2 GGUF files here \(x\.gguf, y\.gguf\); name the one to load"
    ):
        load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "rows", "dtype", "expected"),
    [
        ("F16", None, "stored", torch.float32),
        ("BF16", None, "stored", torch.float32),
        ("BF16", "BF16", "stored", torch.bfloat16),
        ("BF16", None, "float64", torch.float64),
    ],
)
def test_ld15_types_of_gguf_files(tmp_path: Path, kind: str, rows: Any, dtype: str, expected: torch.dtype) -> None:
    checkpoint = load(write_gguf(tmp_path / "x.gguf", llama_tensors(), kind, rows=rows), dtype=dtype)
    assert {value.dtype for value in checkpoint.model.parameters()} == {expected}
    assert {tensor.dtype for tensor in read_folder(save(checkpoint, tmp_path / "a")).values()} == {expected}


def test_the_real_model_is_the_preset_and_answers_alike_when_saved(tmp_path: Path, smollm2: Path) -> None:
    from plait.presets import preset

    checkpoint = load(smollm2)
    assert checkpoint.architecture == preset("smollm2-135m")
    assert {value.dtype for value in checkpoint.model.parameters()} == {torch.float32}
    assert checkpoint.rules == DecodeRules(bos=1, pad=2, end=(2,))
    assert checkpoint.tokenizer is not None
    assert HEAD not in checkpoint.model.state_dict()
    again = load(save(checkpoint, tmp_path / "a"))
    assert again.architecture == checkpoint.architecture
    assert same_tensors(again.model.state_dict(), checkpoint.model.state_dict())
    assert again.tokenizer is not None
    assert again.tokenizer.encode("Hello, 世界!") == checkpoint.tokenizer.encode("Hello, 世界!")
    assert again.rules == checkpoint.rules
    assert set(snapshot(tmp_path / "a")) >= {"config.json", "generation_config.json", "tokenizer.json"}
