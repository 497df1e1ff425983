"""Quantised files of the hub: MXFP4 and FP8 are multiplied out, other formats refused by name."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import plait
from plait.checkpoint.notice import CheckpointError, PlaitNotice
from plait.checkpoint.safetensors import SafetensorsSource
from plait.checkpoint.scaled import METHODS, ScaledSource, multiply_mxfp4, plain
from tests.families.making import checkpoint, read, write

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
FP8 = {"quant_method": "fp8", "weight_block_size": [16, 32], "activation_scheme": "dynamic"}


def mxfp4_by_hand(blocks: Tensor, scales: Tensor) -> list[list[list[float]]]:
    """One number after another, as the format's text says: sign, exponent and mantissa of 4 bits, times 2^(s - 127)."""
    out: list[list[list[float]]] = []
    for expert, exponents in zip(blocks.tolist(), scales.tolist(), strict=True):
        out.append([])
        for row, powers in zip(expert, exponents, strict=True):
            out[-1].append([])
            for block, power in zip(row, powers, strict=True):
                for byte in block:
                    for half in (byte & 15, byte >> 4):
                        size = E2M1[half & 7] * (-1 if half & 8 else 1)
                        out[-1][-1].append(math.ldexp(size, power - 127))
    return out


def test_mxfp4_by_hand_and_as_the_reference_does_it(reference: ModuleType) -> None:
    convert = importlib.import_module(f"{reference.__name__}.integrations.mxfp4").convert_moe_packed_tensors
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (2, 6, 3, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(0, 252, (2, 6, 3), generator=generator, dtype=torch.uint8)
    mine = multiply_mxfp4(blocks, scales)
    assert mine.dtype == torch.bfloat16 and mine.shape == (2, 96, 6)
    assert mine.transpose(1, 2).double().tolist() == mxfp4_by_hand(blocks, scales)
    ordinary = scales.clamp(110, 140)  # the reference's ldexp loses the smallest powers
    assert torch.equal(multiply_mxfp4(blocks, ordinary), convert(blocks, ordinary))


def narrowed(stored: dict[str, Tensor], block: tuple[int, int] | None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Matrices inside the layers in FP8, a scale for each block or for all; and the weights that this says."""
    files, means = dict(stored), dict(stored)
    for name, weight in stored.items():
        if weight.ndim != 2 or ".layers." not in name:
            continue
        rows, columns = block or tuple(weight.shape)
        scales = torch.rand(math.ceil(weight.shape[0] / rows), math.ceil(weight.shape[1] / columns)) / 100 + 1e-3
        spread = scales.repeat_interleave(rows, 0).repeat_interleave(columns, 1)[: weight.shape[0], : weight.shape[1]]
        files[name] = (weight / spread).to(torch.float8_e4m3fn)
        files[f"{name}_scale_inv"] = scales if block else scales.reshape(())
        if not block:
            files[name.replace("weight", "activation_scale")] = torch.ones(())
        means[name] = torch.tensor(
            [
                [float(files[name][i, j]) * float(spread[i, j]) for j in range(weight.shape[1])]
                for i in range(len(spread))
            ]
        )
    assert len(files) > len(stored)
    return files, means


@pytest.mark.parametrize("block", [(16, 32), None], ids=["blocks", "one-scale"])
def test_fp8_is_multiplied_out(block: tuple[int, int] | None, reference: ModuleType, tmp_path: Path) -> None:
    """44 rows and 48 columns: the last blocks are cut off at both ends."""
    _, config, stored = checkpoint(reference, "llama", tmp_path / "before")
    files, means = narrowed(stored, block)
    said = FP8 | {"weight_block_size": list(block) if block else None}
    write(tmp_path / "fp8", config | {"quantization_config": said}, files)
    with pytest.warns(PlaitNotice, match=r"quantised \(fp8\); they are read as float32, and would be saved so"):
        loaded = plait.load(tmp_path / "fp8")
    write(tmp_path / "plain", config, means)
    again = plait.load(tmp_path / "plain")
    for (name, mine), expected in zip(
        loaded.model.state_dict().items(), again.model.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, expected), name

    with pytest.warns(PlaitNotice, match="weights that were fp8 are written as float32"):
        plait.save(loaded, tmp_path / "saved")
    config_saved, saved = read(tmp_path / "saved")
    assert "quantization_config" not in config_saved and saved.keys() == stored.keys()
    assert all(torch.equal(saved[name], means[name]) for name in means)
    theirs = reference.AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        assert (theirs(tokens).logits - loaded.model(tokens)).abs().max() < 1e-4


def test_fp8_as_the_reference_multiplies_it_out(reference: ModuleType, tmp_path: Path) -> None:
    fp8 = importlib.import_module(f"{reference.__name__}.integrations.finegrained_fp8")
    weight, scales = torch.randn(64, 96).to(torch.float8_e4m3fn), torch.rand(4, 3)
    save_file({"w": weight, "w_scale_inv": scales}, tmp_path / "model.safetensors")
    with pytest.warns(PlaitNotice):
        _, source = plain({"quantization_config": FP8}, SafetensorsSource([tmp_path / "model.safetensors"]), tmp_path)
    assert isinstance(source, ScaledSource) and source.names == ("w",) and source.stored_type("w") == "F32"
    theirs = fp8.Fp8Dequantize(None)._dequantize_one(weight, scales, output_dtype=torch.float32)
    assert torch.equal(source.read("w"), theirs)
    assert torch.equal(source.read("w", torch.bfloat16), theirs.bfloat16())
    assert bytes(source.raw("w")) == theirs.numpy().tobytes()


def test_scales_that_are_missing_or_do_not_fit_are_named(tmp_path: Path) -> None:
    def opened(method: dict[str, Any], **tensors: Tensor) -> None:
        save_file(tensors, tmp_path / "model.safetensors")
        plain({"quantization_config": method}, SafetensorsSource([tmp_path / "model.safetensors"]), tmp_path)

    narrow = torch.zeros(64, 96).to(torch.float8_e4m3fn)
    with pytest.raises(CheckpointError, match="^w: it is quantised, and its scales, w_scale_inv, are not stored"):
        opened(FP8, w=narrow)
    with pytest.raises(CheckpointError, match=r"w_scale_inv: its shape \(4, 4\) does not fit w, \(64, 96\), in blocks"):
        opened(FP8, w=narrow, w_scale_inv=torch.ones(4, 4))
    with pytest.raises(CheckpointError, match=r"does not fit w, \(64, 96\), in blocks of \[\]"):
        opened({"quant_method": "fp8"}, w=narrow, w_scale_inv=torch.ones(4, 3))
    blocks = torch.zeros(2, 6, 3, 16, dtype=torch.uint8)
    with pytest.raises(CheckpointError, match="x_blocks: it is quantised, and its scales, x_scales"):
        opened({"quant_method": "mxfp4"}, x_blocks=blocks)
    with pytest.raises(CheckpointError, match=r"x_scales: its shape \(2, 6, 2\) does not fit x_blocks"):
        opened({"quant_method": "mxfp4"}, x_blocks=blocks, x_scales=torch.zeros(2, 6, 2, dtype=torch.uint8))


MXFP4 = {"quant_method": "mxfp4"}
BLOCKS, EXPONENTS = torch.zeros(2, 6, 3, 16, dtype=torch.uint8), torch.zeros(2, 6, 3, dtype=torch.uint8)
NARROW = torch.zeros(64, 96).to(torch.float8_e4m3fn)
TANGLED: list[tuple[Any, dict[str, Tensor], str]] = [
    (MXFP4, {"w": torch.ones(2, 96, 6), "w_blocks": BLOCKS, "w_scales": EXPONENTS}, "^w: it is stored twice"),
    (MXFP4, {"w_blocks": BLOCKS.float(), "w_scales": EXPONENTS}, "^w_blocks: it is stored as F32; .* has U8 there"),
    (MXFP4, {"w_blocks": BLOCKS, "w_scales": EXPONENTS.float()}, "^w_scales: it is stored as F32; .* F8_E8M0 or U8"),
    (MXFP4, {"w_blocks": BLOCKS[0, 0], "w_scales": EXPONENTS[0, 0]}, r"^w_blocks: its shape \(3, 16\) is not that of"),
    (MXFP4, {"w_blocks": BLOCKS[..., :8].contiguous(), "w_scales": EXPONENTS}, r"^w_blocks: its shape \(2, 6, 3, 8\)"),
    (FP8, {"w": NARROW, "w_scale_inv": torch.ones(4, 3, dtype=torch.int32)}, "^w_scale_inv: it is stored as I32"),
    *(
        (FP8 | {"weight_block_size": size}, {"w": NARROW, "w_scale_inv": torch.ones(4, 3)}, "weight_block_size: .* two")
        for size in (16, [16], [16, 0], [16, "32"], [True, 32], "ab", {"a": 1, "b": 2}, [])
    ),
    *((said, {"w": NARROW}, "quantization_config is .* it must be an object") for said in ("fp8", ["fp8"], 8, [], "")),
    *(({"quant_method": m}, {"w": NARROW}, "says .*, a format that plait does not") for m in (["fp8"], {"a": 1}, 8)),
]


@pytest.mark.parametrize(("said", "tensors", "sentence"), TANGLED)
def test_what_cannot_be_so_is_refused_in_a_sentence(
    said: Any, tensors: dict[str, Tensor], sentence: str, tmp_path: Path
) -> None:
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=sentence):
        plain({"quantization_config": said}, SafetensorsSource([tmp_path / "model.safetensors"]), tmp_path)


REFUSED = [
    "awq",
    "gptq",
    "bitsandbytes",
    "compressed-tensors",
    "fbgemm_fp8",
    "hqq",
    "quanto",
    "torchao",
    "aqlm",
]


@pytest.mark.parametrize("method", REFUSED)
def test_other_formats_are_refused_by_name(method: str, reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "llama", tmp_path / "before")
    write(tmp_path / "after", config | {"quantization_config": {"quant_method": method, "bits": 4}}, stored)
    with pytest.raises(CheckpointError, match=rf"quantization_config says '{method}', a format that plait does not"):
        plait.load(tmp_path / "after")
    assert method not in METHODS


def test_bitsandbytes_that_does_not_say_its_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="says 'bitsandbytes'"):
        plain({"quantization_config": {"load_in_4bit": True}}, None, tmp_path)


def test_float8_without_scales_is_a_plain_type(reference: ModuleType, tmp_path: Path) -> None:
    _, config, stored = checkpoint(reference, "llama", tmp_path / "before")
    files = {name: t.to(torch.float8_e4m3fn if "proj" in name else torch.bfloat16) for name, t in stored.items()}
    write(tmp_path / "float8", config, files)
    with pytest.warns(PlaitNotice, match="partly stored in float8; loaded as bfloat16"):
        loaded = plait.load(tmp_path / "float8")
    assert {p.dtype for p in loaded.model.parameters()} == {torch.bfloat16}
    plait.save(loaded, tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert all(saved[n].dtype == t.dtype and torch.equal(saved[n].float(), t.float()) for n, t in files.items())


def test_the_key_of_quantised_files_is_of_what_is_stored(
    reference: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes with a scale, and nothing is multiplied out for it."""
    _, config, stored = checkpoint(reference, "llama", tmp_path / "before")
    files, _ = narrowed(stored, (16, 32))
    scale = "model.layers.0.mlp.up_proj.weight_scale_inv"
    keys: set[str] = set()
    for folder, factor in (("one", 1), ("other", 2)):
        write(tmp_path / folder, config | {"quantization_config": FP8}, files | {scale: files[scale] * factor})
        with pytest.warns(PlaitNotice):
            lazy = plait.load(tmp_path / folder, lazy=True)
        with monkeypatch.context() as patch:
            patch.setattr(ScaledSource, "read", lambda *_: pytest.fail("it was read"))
            keys.add(lazy.weights().identity())
    assert len(keys) == 2
