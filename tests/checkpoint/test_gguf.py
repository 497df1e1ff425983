from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plait.checkpoint import CheckpointError, GGUFSource, TensorSource
from plait.checkpoint.dequantise import BLOCK_FORMATS, dequantise

gguf = pytest.importorskip("gguf")


def random_blocks(kind: str, n: int, seed: int = 0) -> np.ndarray:
    """Every bit pattern may occur in a block, except scales that are infinite or no number."""
    blocks = np.random.default_rng(seed).integers(0, 256, (n, BLOCK_FORMATS[kind].bytes), dtype=np.uint8)
    for at in {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,)}.get(
        kind, (0, 2)
    ):
        blocks[:, at + 1] &= 0b10111011  # an exponent below the top one
    return blocks


@pytest.mark.parametrize("kind", BLOCK_FORMATS)
def test_blocks_become_the_numbers_of_the_reference_to_the_bit(kind: str) -> None:
    blocks = random_blocks(kind, 300)
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind])
    assert np.isfinite(expected).all()
    found = dequantise(torch.from_numpy(blocks), kind)
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.from_numpy(expected).view_as(found))


@pytest.mark.parametrize("kind", BLOCK_FORMATS)
def test_block_sizes_are_the_reference_librarys(kind: str) -> None:
    expected = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    assert (BLOCK_FORMATS[kind].weights, BLOCK_FORMATS[kind].bytes) == expected


def write_gguf(
    path: Path, tensors: dict[str, tuple[np.ndarray, str]], fill: Callable[[Any], None] | None = None
) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    if fill:
        fill(writer)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_what_the_reference_library_quantises_is_read_back(tmp_path: Path, kind: str) -> None:
    weights = np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)
    stored = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[kind])
    source = GGUFSource(write_gguf(tmp_path / "x.gguf", {"a": (stored, kind), "b": (weights[:1], "F32")}))
    assert isinstance(source, TensorSource)
    assert source.names == ("a", "b")
    assert source.shape("a") == (3, 64)
    assert source.stored_type("a") == kind
    expected = torch.from_numpy(gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[kind]).astype(np.float32))
    read = source.read("a")
    assert read.dtype == {"F16": torch.float16, "BF16": torch.bfloat16}.get(kind, torch.float32)
    assert torch.equal(read.float(), expected.view(3, 64))
    assert source.read("a", torch.float64).dtype == torch.float64
    assert bytes(source.raw("a")) == stored.tobytes()
    assert torch.equal(source.read("b"), torch.from_numpy(weights[:1]))


def test_metadata_of_every_kind(tmp_path: Path) -> None:
    def fill(writer: Any) -> None:
        writer.add_custom_alignment(64)
        writer.add_string("s", "héllo\n")
        writer.add_bool("t", True)
        for kind, value in {"uint8": 255, "int8": -8, "uint16": 65535, "int16": -9, "uint32": 2**32 - 1}.items():
            getattr(writer, f"add_{kind}")(kind, value)
        writer.add_int32("int32", -5)
        writer.add_uint64("uint64", 2**63)
        writer.add_int64("int64", -(2**62))
        writer.add_float32("float32", 0.5)
        writer.add_float64("float64", 0.1)
        writer.add_array("strings", ["", "a", "日本"])
        writer.add_array("numbers", [1, -2, 3])
        writer.add_array("floats", [0.5, -1.5])
        writer.add_array("nested", [[1, 2], [3]])

    ones = np.ones((2, 3), dtype=np.float32)
    source = GGUFSource(write_gguf(tmp_path / "x.gguf", {"a": (ones, "F32"), "b": (2 * ones, "F32")}, fill))
    read = source.metadata
    assert read["general.architecture"] == "llama"
    assert (read["s"], read["t"], read["uint8"], read["int8"], read["uint16"]) == ("héllo\n", True, 255, -8, 65535)
    assert (read["int16"], read["uint32"], read["int32"], read["uint64"]) == (-9, 2**32 - 1, -5, 2**63)
    assert (read["int64"], read["float32"], read["float64"]) == (-(2**62), 0.5, 0.1)
    assert (read["strings"], read["numbers"], read["floats"]) == (["", "a", "日本"], [1, -2, 3], [0.5, -1.5])
    assert read["nested"] == [[1, 2], [3]]
    assert torch.equal(source.read("b"), torch.full((2, 3), 2.0)), "tensors are found under an alignment of 64"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def header(*, magic: bytes = b"GGUF", version: int = 3, tensors: int = 0, entries: int = 0) -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, entries)


def tensor(name: str, dims: tuple[int, ...], kind: int, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def padded(data: bytes, *, extra: int = 0) -> bytes:
    return data + b"\0" * (-len(data) % 32 + extra)


def uint32(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", 4, value)


BROKEN = {
    "magic": (b"PK\3\4" + b"\0" * 60, r"starts with b'PK\\x03\\x04', a GGUF file with b'GGUF'"),
    "empty": (b"", r"starts with b''"),
    "version": (header(version=1), "GGUF version 1; versions 2 and 3 are read"),
    "endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "short": (header()[:15], "takes 8 bytes, and 7 of the file's 15 are left"),
    "entries": (header(entries=2**60), f"claims {2**60} metadata entries, but the file has only 24 bytes"),
    "tensors": (header(tensors=10**9), "claims 1000000000 tensors, but the file has only 24 bytes"),
    "key": (
        header(entries=1) + struct.pack("<Q", 2**40) + b"x" * 60,
        f"a string at byte 32 takes {2**40} bytes, and 60 of the file's 92",
    ),
    "kind": (
        header(entries=1) + text("k" * 20) + struct.pack("<I", 77),
        "key 'k+' has type 77, which GGUF does not define",
    ),
    "list": (
        header(entries=1) + text("k" * 20) + struct.pack("<IIQ", 9, 4, 2**50),
        f"the list 'k+' at byte 68 takes {2**52} bytes, and 0 of",
    ),
    "strings": (
        header(entries=1) + text("k" * 20) + struct.pack("<IIQ", 9, 8, 2**50),
        f"claims {2**50} strings or lists in 'k+', but the file has only 68 bytes",
    ),
    "cut strings": (
        header(entries=1) + text("k" * 20) + struct.pack("<IIQ", 9, 8, 2) + text("ab") + struct.pack("<Q", 99),
        "a string of 'k+' at byte 86 takes 99 bytes, and 0 of",
    ),
    "utf-8": (header(entries=1) + struct.pack("<Q", 20) + b"\xff" * 20 + b"\0" * 9, "is not UTF-8"),
    "twice": (header(entries=2) + uint32("k", 1) + uint32("k", 2), "the metadata key 'k' stands twice"),
    "alignment": (
        header(entries=1) + uint32("general.alignment", 24),
        "general.alignment is 24; it must be a power of two",
    ),
    "parts": (
        header(entries=1) + uint32("split.count", 3),
        "one of 3 parts; join them with llama.cpp's `llama-gguf-split",
    ),
    "parts in words": (
        header(entries=1) + text("split.count") + struct.pack("<I", 8) + text("two"),
        "split.count is 'two'; it must be a whole number",
    ),
    "dimensions": (header(tensors=1) + tensor("a" * 40, (1, 1, 1, 1, 1), 0), "has 5 dimensions; GGUF allows 4"),
    "type": (
        padded(header(tensors=1) + tensor("a", (256,), 23), extra=999),
        "does not read IQ4_XS, the type of the tensor 'a'",
    ),
    "new type": (padded(header(tensors=1) + tensor("a", (8,), 99), extra=99), "does not read number 99, the type of"),
    "blocks": (
        padded(header(tensors=1) + tensor("a", (33, 32), 2), extra=999),
        r"rows of 'a', \(32, 33\), are not whole Q4_0 blocks of 32 weights",
    ),
    "data": (
        padded(header(tensors=1) + tensor("a", (8, 4), 0), extra=127),
        "the tensor 'a' ends at byte 224, the file has 223 bytes",
    ),
    "huge": (
        padded(header(tensors=1) + tensor("a", (2**40, 2**40), 0), extra=64),
        f"the tensor 'a' ends at byte {2**82 + 96}, the file has 160 bytes",
    ),
    "offset": (
        padded(header(tensors=1) + tensor("a", (8,), 0, 2**50), extra=64),
        f"the tensor 'a' ends at byte {2**50 + 96}, the file has 128 bytes",
    ),
    "uneven": (
        padded(header(tensors=1) + tensor("a", (8,), 0, 2), extra=64),
        "starts at byte 66, which is no multiple of",
    ),
    "names": (
        padded(header(tensors=2) + tensor("a", (8,), 0) + tensor("a", (8,), 0), extra=64),
        "describes 2 tensors under 1 names",
    ),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 98362432\n",
        "these 71 bytes are a Git LFS pointer to a file of 98362432 bytes",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_ld2_a_broken_gguf_file_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    data, message = BROKEN[name]
    path = tmp_path / "broken.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        GGUFSource(path)
    assert str(path) in str(caught.value)


def test_version_2_is_read(tmp_path: Path) -> None:
    data = padded(header(version=2, tensors=1) + tensor("a", (2, 1), 0)) + np.array([3, 4], dtype=np.float32).tobytes()
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    assert GGUFSource(path).read("a").tolist() == [[3.0, 4.0]]


def test_ld2_a_real_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    def fill(writer: Any) -> None:
        writer.add_array("tokens", ["a", "bc", ""])
        writer.add_float32("scale", 1.5)

    weights = np.ones((2, 32), dtype=np.float32)
    whole = write_gguf(tmp_path / "x.gguf", {"a": (weights, "F32")}, fill).read_bytes()
    path = tmp_path / "cut.gguf"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            GGUFSource(path)
    path.write_bytes(whole)
    assert GGUFSource(path).names == ("a",)


def test_a_vocabulary_of_150000_is_read_in_well_under_a_second(tmp_path: Path) -> None:
    tokens = [f"token{i}" for i in range(150_000)]
    path = write_gguf(tmp_path / "x.gguf", {}, lambda writer: writer.add_array("tokenizer.ggml.tokens", tokens))
    start = time.perf_counter()
    source = GGUFSource(path)
    assert time.perf_counter() - start < 1
    assert source.metadata["tokenizer.ggml.tokens"] == tokens


def test_the_real_header(smollm2: Path) -> None:
    source = GGUFSource(smollm2)
    assert source.metadata["general.architecture"] == "llama"
    assert len(source.metadata["tokenizer.ggml.tokens"]) == 49152
    assert source.stored_type("token_embd.weight") == "Q8_0"
    assert source.shape("token_embd.weight") == (49152, 576)
    assert source.stored_type("blk.0.attn_q.weight") == "Q4_1"
