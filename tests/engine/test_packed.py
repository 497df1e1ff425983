"""Packed matrices say the numbers they were made of; the kernels' header draws the same layouts."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import plait.engine
from plait.checkpoint.blocks import Blocks
from plait.checkpoint.dequantise import BLOCK_FORMATS
from plait.engine.packed import BLOCKS, FORMATS, groups, pack, pack_blocks, pack_groups, packed_bytes, stack, unpack
from tests.engine.packing import drawn, parts

SHAPES = [(16, 32), (1, 1), (17, 33), (50, 70), (31, 31), (48, 96), (3, 200)]
QUANTISED = [name for name, layout in FORMATS.items() if layout.scale is not None]


def draw() -> torch.Generator:
    return torch.Generator().manual_seed(11)


@pytest.mark.parametrize("rows,columns", SHAPES)
def test_plain_numbers_come_back(rows: int, columns: int):
    weight = torch.randn(rows, columns, generator=draw())
    assert torch.equal(unpack(pack(weight, "F32")), weight)
    assert torch.equal(unpack(pack(weight, "BF16")), weight.bfloat16().float())
    assert torch.equal(unpack(pack(weight.T.contiguous().T, "BF16")), weight.bfloat16().float())


@pytest.mark.parametrize("format", QUANTISED)
@pytest.mark.parametrize("rows,columns", SHAPES)
def test_groups_come_back_and_say_their_numbers(format: str, rows: int, columns: int):
    quants, scales, minimums = parts(format, rows, columns, draw())
    packed = pack_groups(quants, scales, minimums, format)
    again = groups(packed)
    assert torch.equal(again[0][:, :columns], quants) and torch.equal(again[1], scales)
    assert (minimums is None) == (again[2] is None) and (minimums is None or torch.equal(again[2], minimums))
    offset = 8 if format == "I4" else 0
    group = torch.arange(columns) // FORMATS[format].inputs
    weights = (quants.float() - offset) * scales.float()[:, group]
    if minimums is not None:
        weights += minimums.float()[:, group]
    assert torch.equal(unpack(packed), weights)


def test_a_panel_lies_as_it_is_drawn():
    quants = (torch.arange(32)[None] + torch.arange(16)[:, None]).to(torch.uint8) % 16
    data = pack_groups(quants, torch.ones(16, 1), None, "I4").data[32:].view(4, 16, 4)
    v, row, j = 2, 5, 3
    assert data[v, row, j] == quants[row, 4 * v + j] | quants[row, 16 + 4 * v + j] << 4
    q = torch.arange(16 * 32).view(16, 32).to(torch.int8)
    assert pack_groups(q, torch.ones(16, 1), None, "I8").data[32:].view(torch.int8).view(16, 16, 2)[7, 3, 1] == q[3, 15]


def test_what_is_beyond_the_matrix_is_nothing():
    for format in FORMATS:
        packed = drawn(format, 17, 33, draw())
        whole = type(packed)(format, 32, packed.groups * FORMATS[format].inputs, packed.data)
        assert not unpack(whole)[17:].any(), format
        if not FORMATS[format].minimum:  # a minimum is taken off by activations of zero
            assert not unpack(whole)[:, 33:].any(), format


@pytest.mark.parametrize("format", FORMATS)
def test_sizes_and_alignment(format: str):
    packed = drawn(format, 40, 100, draw())
    assert packed.nbytes == packed_bytes(format, 40, 100) == 3 * packed.groups * FORMATS[format].bytes
    assert packed.data.dtype == torch.uint8 and packed.data.data_ptr() % 64 == 0


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("rows", [(16, 32, 5), (7, 16, 20)])
def test_stacked_rows_follow_each_other(format: str, rows: tuple[int, ...]):
    packed = [drawn(format, n, 70, draw()) for n in rows]
    whole = stack(packed)
    assert whole.rows == sum(rows) and torch.equal(unpack(whole), torch.cat([unpack(part) for part in packed]))


def test_the_header_draws_the_same_layouts():
    text = (Path(plait.engine.__file__).parent / "csrc/formats.h").read_text()
    names = re.search(r"enum Format : int64_t \{ (.*), FORMATS \}", text)
    sizes = re.search(r"LAYOUTS\[FORMATS\] = \{(.*)\};", text)
    assert names and sizes
    pairs = re.findall(r"\{(\d+), (\d+)\}", sizes[1])
    told = {
        name: (number, *map(int, pair))
        for number, (name, pair) in enumerate(zip(names[1].split(", "), pairs, strict=True))
    }
    assert told == {name: (layout.number, layout.inputs, layout.bytes) for name, layout in FORMATS.items()}


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("rows", [1, 16, 37])
@pytest.mark.parametrize("n", [1, 3])
def test_blocks_of_gguf_keep_their_numbers(kind: str, rows: int, n: int):
    stored = BLOCK_FORMATS[kind]
    columns = n * stored.weights
    data = np.random.default_rng(5).integers(0, 256, (rows * n, stored.bytes), dtype=np.uint8)
    # The float16 numbers among the bytes are made small: random ones would be infinities, too.
    for start in {"Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q4_K": (0, 2), "Q6_K": (208,)}[kind]:
        data[:, start : start + 2] = (
            np.random.default_rng(start).normal(size=(rows * n, 1)).astype(np.float16).view(np.uint8)
        )
    blocks = Blocks(kind, rows, columns, torch.from_numpy(data).view(rows, -1))
    packed = pack_blocks(blocks)
    assert (packed.rows, packed.columns, packed.format) == (rows, columns, BLOCKS[kind][0])
    assert torch.equal(unpack(packed), blocks.dequantised())


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="pack_groups"):
        pack(torch.zeros(2, 2), "I8")
    with pytest.raises(ValueError, match="matrix"):
        pack(torch.zeros(2), "F32")
    quants, scales, minimums = parts("I4M", 3, 40, draw())
    with pytest.raises(ValueError, match="minimums"):
        pack_groups(quants, scales, None, "I4M")
    with pytest.raises(ValueError, match="minimums"):
        pack_groups(quants, scales, minimums, "I4")
    with pytest.raises(ValueError, match="int8"):
        pack_groups(quants, scales, None, "I8")
    with pytest.raises(ValueError, match=r"\(3, 2\), not \(3, 1\)"):
        pack_groups(quants, scales[:, :1], None, "I4")
    with pytest.raises(ValueError, match="Q2_K"):
        pack_blocks(Blocks("Q2_K", 1, 256, torch.zeros(1, 84, dtype=torch.uint8)))
    with pytest.raises(ValueError, match="one format"):
        stack([pack(torch.zeros(2, 2), "F32"), pack(torch.zeros(2, 2), "BF16")])
