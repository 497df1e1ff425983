"""Quantised checkpoints: rounding that beats the nearest, blocks that are stored, read, kept and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from plait.architecture import Architecture, EncoderDifferences, RelativeBias
from plait.checkpoint import (
    QUANTIZATIONS,
    Checkpoint,
    CheckpointError,
    PlaitNotice,
    SafetensorsSource,
    calibrate,
    compensation,
    load,
    quantise,
    save,
)
from plait.checkpoint.compensation import compensate, output_error
from plait.checkpoint.dequantise import BLOCK_FORMATS
from plait.checkpoint.quantise import block_types
from plait.checkpoint.rounding import GRIDS, inverse, relative_error, round_to_blocks
from plait.parameters import parameters
from tests.checkpoint.making import snapshot
from tests.checkpoint.test_weights import write_gguf

TINY: dict[str, Any] = {"vocab_size": 40, "d_model": 64, "n_heads": 4, "d_ff": 96}
SHAPES = {
    "decoder": Architecture(**TINY, n_decoder_layers=2, position="rope", norm="rmsnorm", gated=True, tied=True),
    "untied": Architecture(**TINY, n_decoder_layers=1, position="learned", max_length=32),
    "translator": Architecture(
        **TINY, n_encoder_layers=1, n_decoder_layers=1, relative_bias=RelativeBias(buckets=32, max_distance=64),
        encoder=EncoderDifferences(vocab_size=50, d_ff=64),
    ),
    "encoder": Architecture(
        **TINY, n_encoder_layers=1, position="learned", max_length=32, token_types=2, d_embedding=32,
        head="masked", head_transform="gelu", tied=True, logit_bias=True,
    ),
}  # fmt: skip
QUERY = "decoder.layers.0.attention.query.weight"
KINDS = [*QUANTIZATIONS.values()]


class Letters:
    """A tokenizer of one token a letter."""

    target = None

    def encode(self, text: str, specials: bool = True, *, control: bool = True) -> list[int]:
        return [ord(letter) % 40 for letter in text]

    def decode(self, ids: list[int], skip_specials: bool = False) -> str:
        return "".join(map(chr, ids))


def drawn(name: str = "decoder", **options: Any) -> Checkpoint:
    return load(SHAPES[name], random=True, **options)


# Rounding


def normal(rows: int = 64, columns: int = 256, *, heavy: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(rows, columns, generator=generator) * 0.02
    return values**3 * 2000 if heavy else values


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize(("kind", "share"), [("Q8_0", 0.96), ("Q4_0", 0.98), ("Q4_1", 0.93)])
def test_the_search_beats_the_nearest_and_the_reference_of_ggml(kind: str, share: float, heavy: bool) -> None:
    gguf = pytest.importorskip("gguf")
    weight = normal(heavy=heavy)
    type_ = gguf.GGMLQuantizationType[kind]
    theirs = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(weight.numpy(), type_), type_))
    nearest = float((weight - theirs).norm() / weight.norm())
    found = round_to_blocks(weight, kind)
    assert relative_error(weight, found) < share * nearest
    apart = float((weight - found.dequantised()).norm() / weight.norm())
    assert relative_error(weight, found) == pytest.approx(apart, rel=1e-4)


def test_rounding_in_inference_mode_is_the_same() -> None:
    with torch.inference_mode():
        found = round_to_blocks(normal(), "Q4_0")
        careful = compensate(normal(), "Q4_0", inputs_that_go_together())
    assert torch.equal(found.data, round_to_blocks(normal(), "Q4_0").data)
    assert torch.equal(careful.data, compensate(normal(), "Q4_0", inputs_that_go_together()).data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_keeps_its_length_along_its_own_direction(kind: str) -> None:
    weight = normal()
    assert float((weight * round_to_blocks(weight, kind).dequantised()).sum() / weight.square().sum()) > 0.999


@pytest.mark.parametrize("kind", KINDS)
def test_other_readers_read_the_same(kind: str) -> None:
    gguf = pytest.importorskip("gguf")
    found = round_to_blocks(normal(), kind)
    theirs = gguf.quants.dequantize(found.data.numpy(), gguf.GGMLQuantizationType[kind])
    assert torch.equal(torch.from_numpy(theirs), found.dequantised())


@pytest.mark.parametrize("kind", KINDS)
def test_what_counts_more_is_rounded_with_more_care(kind: str) -> None:
    weight, importance = normal(), torch.logspace(-2, 2, 256)[torch.randperm(256)]
    careful, plain = round_to_blocks(weight, kind, importance), round_to_blocks(weight, kind)
    counted = importance.diag()[None]
    assert output_error(weight, careful, counted) < 0.95 * output_error(weight, plain, counted)
    assert relative_error(weight, careful) > relative_error(weight, plain)
    scaled = round_to_blocks(weight, kind, importance * 1000)
    assert output_error(weight, scaled, counted) == pytest.approx(output_error(weight, careful, counted), rel=1e-3)


def inputs_that_go_together() -> torch.Tensor:
    """Second moments of 256 inputs that are mixed of 40 causes, with a mean, and a little noise."""
    causes = torch.randn(40, 256, generator=torch.Generator().manual_seed(1))
    return (causes.t() @ causes / 40 + 0.05 * torch.eye(256) + 0.5)[None]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_made_up_for(kind: str) -> None:
    weight, moments = normal(), inputs_that_go_together()
    plain, careful = round_to_blocks(weight, kind), compensate(weight, kind, moments)
    assert output_error(weight, careful, moments) < 0.5 * output_error(weight, plain, moments)
    assert relative_error(weight, careful) < 2.5 * relative_error(weight, plain)
    x = torch.randn(4096, 256) @ torch.linalg.cholesky(moments[0]).t()  # inputs with these moments
    missed = (x @ (weight - careful.dequantised()).t()).norm() / (x @ weight.t()).norm()
    assert output_error(weight, careful, moments) == pytest.approx(float(missed), rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_where_inputs_have_nothing_in_common_compensation_is_rounding(kind: str) -> None:
    weight, alone = normal(), torch.eye(256)[None]
    found, plain = compensate(weight, kind, alone), round_to_blocks(weight, kind)
    assert output_error(weight, found, alone) <= 1.001 * output_error(weight, plain, alone)
    assert output_error(weight, found, alone) == pytest.approx(relative_error(weight, found), rel=1e-4)
    assert torch.equal(compensate(weight, kind, 1000 * alone).data, found.data)
    assert torch.equal(compensate(weight, kind, 0 * alone).data, found.data)


def test_slabs_are_rounded_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compensation, "WIDEST", 100)
    assert [compensation.slab_width(n) for n in (256, 96, 72, 320)] == [64, 96, 72, 64]
    moments = inputs_that_go_together()[0]
    slabs = torch.stack([moments[i : i + 64, i : i + 64] for i in range(0, 256, 64)])
    whole, parts = compensate(normal(), "Q4_1", slabs), normal().split(64, 1)
    alone = [compensate(part.contiguous(), "Q4_1", slab[None]) for part, slab in zip(parts, slabs, strict=True)]
    assert torch.equal(whole.data, torch.cat([part.data for part in alone], 1))


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_that_was_never_seen_is_not_given_up(kind: str) -> None:
    importance = torch.zeros(256)
    importance[:100] = 1.0
    found = round_to_blocks(normal(), kind, importance)
    rest = normal()[:, 128:] - found.dequantised()[:, 128:]
    assert rest.norm() < 0.12 * normal()[:, 128:].norm()
    assert torch.equal(round_to_blocks(normal(), kind, torch.zeros(256)).data, round_to_blocks(normal(), kind).data)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_any_group_is_rounded_to_within_half_a_step_of_the_nearest(kind: str, data: st.DataObject) -> None:
    """Constant groups, zeros, one large weight, tiny and huge numbers: finite, and no worse than the nearest."""
    number = st.sampled_from([0.0, 1.0, -1.0, 1e-3, 65504.0, -6e4, 1e-7]) | st.floats(-10, 10, width=32)
    group = torch.tensor([data.draw(st.lists(number, min_size=32, max_size=32))])
    found = round_to_blocks(group, kind).dequantised()
    assert found.isfinite().all()
    low, high = (float(group.min()), float(group.max())) if kind == "Q4_1" else (0.0, float(group.abs().max()))
    step = (high - low) / {"Q4_0": 8, "Q4_1": 15, "Q8_0": 127}[kind]
    stored = 2.0**-9 * max(abs(float(group.min())), abs(float(group.max()))) + 1e-6  # half precision, subnormal scales
    assert float((group - found).square().mean().sqrt()) <= 0.5 * step + stored


ODD_GROUPS = {
    "normal": normal(),
    "heavy": normal(heavy=True),
    "ties": (normal() * 200).round(),  # many groups with both signs of their largest weight
    "zeros": normal() * (torch.arange(64) % 2)[:, None],
    "wild": normal() * torch.logspace(-42, 36, 64)[:, None],  # whose inverse, or whose square, no float holds
}


def searched(x: Tensor, a: Tensor | None, kind: str) -> Tensor:
    """The scale of each group ``(32, n)``, one attempt after the other, as the search is defined."""
    low, high, tried = {
        "Q8_0": (-127, 127, [127.0, *(122 + 0.5 * i for i in range(16))]),
        "Q4_0": (-8, 7, [-8.0, -6.25, -6.75, -7.0, -7.25, -7.5, -7.75, -8.25, -8.5]),
    }[kind]
    largest = x.gather(0, x.abs().argmax(0, keepdim=True))[0]
    best, least = torch.zeros_like(largest), torch.full_like(largest, -1.0)
    for integer in (*tried, None):
        q = (x * (inverse(largest) * integer if integer else inverse(best))).round().clamp(low, high)
        along = (q * (x if a is None else x * a)).sum(0)
        d = along * inverse((q.square() if a is None else q.square() * a).sum(0))
        better = along * d > least
        best, least = torch.where(better, d, best), torch.where(better, along * d, least)
    return best


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ODD_GROUPS)
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_all_attempts_at_once_find_what_one_after_the_other_does(kind: str, name: str, weighted: bool) -> None:
    x = ODD_GROUPS[name].reshape(-1, 32).t().contiguous()
    a = torch.linspace(0.1, 3, 32)[:, None].repeat(1, x.shape[1]) if weighted else None
    assert torch.equal(GRIDS[kind].best(x, a)[0], searched(x, a, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_blocks_already_comes_back(kind: str) -> None:
    once = round_to_blocks(normal(), kind)
    again = round_to_blocks(once.dequantised(), kind)
    assert relative_error(once.dequantised(), again) < 2e-3


def test_shapes_that_are_no_groups_and_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(CheckpointError, match="40 columns are no whole groups of 32"):
        round_to_blocks(torch.ones(2, 40), "Q4_0")
    with pytest.raises(CheckpointError, match="numbers that are not finite"):
        round_to_blocks(torch.full((2, 32), float("nan")), "Q4_0")
    assert relative_error(torch.zeros(2, 32), round_to_blocks(torch.zeros(2, 32), "Q4_1")) == 0.0
    assert round_to_blocks(torch.zeros(0, 32), "Q8_0").dequantised().shape == (0, 32)


# Checkpoints


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
@pytest.mark.parametrize("name", SHAPES)
def test_every_matrix_that_multiplies_is_rounded_and_nothing_else(name: str, quantization: str) -> None:
    original = drawn(name)
    checkpoint, report = quantise(original, quantization)
    kinds, weights = {tensor.name: tensor.type for tensor in report}, checkpoint.weights()
    assert kinds == block_types(SHAPES[name], quantization)
    for parameter, shape in parameters(SHAPES[name]).items():
        leaf = parameter.split(".")[-2]
        multiplies = len(shape) == 2 and leaf not in ("positions", "types", "relative_bias")
        assert (parameter in kinds) == multiplies, parameter
        if multiplies:
            expected = "Q8_0" if leaf in ("tokens",) or parameter.startswith("head.output") else None
            assert kinds[parameter] == (expected or QUANTIZATIONS[quantization])
            blocks = weights.blocks(parameter)
            assert blocks is not None
            assert torch.equal(blocks.dequantised(), weights.read(parameter))
        else:
            assert torch.equal(weights.read(parameter), original.weights().read(parameter))
    for tensor in report:
        assert tensor.bits == 8 * BLOCK_FORMATS[tensor.type].bytes / 32
        before, after = original.weights().read(tensor.name), weights.read(tensor.name)
        assert tensor.error == pytest.approx(float((before - after).norm() / before.norm()), rel=1e-3)
        assert tensor.error < (0.01 if tensor.type == "Q8_0" else 0.12)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_saved_and_loaded_it_is_the_same_to_the_byte(tmp_path: Path, quantization: str, dtype: str) -> None:
    checkpoint, _ = quantise(drawn(dtype=dtype), quantization)
    folder = save(checkpoint, tmp_path / "a")
    again = load(folder)
    tokens = torch.arange(9)[None]
    assert torch.equal(again.model(tokens), checkpoint.model(tokens))
    assert {p.dtype for p in again.model.parameters()} == {torch.float32}
    stored = load_file(folder / "model.safetensors")
    for name, parameter in stored.items():
        if parameter.dtype == torch.uint8:
            blocks = again.weights().blocks(name)
            assert blocks is not None
            assert torch.equal(blocks.data, parameter)
            assert again.weights().stored_type(name) == "F32", "in memory"
            assert load(folder, device="meta").weights().stored_type(name) == blocks.type
        else:
            assert parameter.dtype == getattr(torch, dtype)
    assert snapshot(save(again, tmp_path / "b")) == snapshot(folder)
    assert snapshot(save(load(folder, device="meta"), tmp_path / "c")) == snapshot(folder)
    bare, _ = quantise(drawn(dtype=dtype), quantization, device="meta")
    assert snapshot(save(bare, tmp_path / "d")) == snapshot(folder)


def test_shards_say_which_of_their_tensors_are_blocks(tmp_path: Path) -> None:
    checkpoint, _ = quantise(drawn(), "int4")
    folder = save(checkpoint, tmp_path / "a", max_shard_bytes=10_000)
    assert len(list(folder.glob("*.safetensors"))) > 2
    assert torch.equal(load(folder).model(torch.arange(5)[None]), checkpoint.model(torch.arange(5)[None]))


def test_what_was_trained_is_no_longer_in_blocks(tmp_path: Path) -> None:
    checkpoint = load(save(quantise(drawn(), "int4")[0], tmp_path / "a"))
    checkpoint.model.get_parameter(QUERY).data[0, 0] += 1
    folder = save(checkpoint, tmp_path / "b")
    stored = load_file(folder / "model.safetensors")
    assert stored[QUERY].dtype == torch.float32
    assert {t.dtype for name, t in stored.items() if "key.weight" in name} == {torch.uint8}
    assert torch.equal(load(folder).model.get_parameter(QUERY), checkpoint.model.get_parameter(QUERY))


def test_a_type_that_was_asked_for_is_written(tmp_path: Path) -> None:
    folder = save(quantise(drawn(), "int8")[0], tmp_path / "a")
    floats = save(load(folder, dtype="bfloat16"), tmp_path / "b")
    assert {t.dtype for t in load_file(floats / "model.safetensors").values()} == {torch.bfloat16}
    assert "blocks" not in json.loads((floats / "config.json").read_text())


def test_in_a_foreign_dialect_it_is_floats(tmp_path: Path) -> None:
    checkpoint, _ = quantise(drawn(), "int4_min")
    folder = save(checkpoint, tmp_path / "a", dialect="llama")
    assert {t.dtype for t in load_file(folder / "model.safetensors").values()} == {torch.float32}
    assert torch.equal(load(folder).model(torch.arange(5)[None]), checkpoint.model(torch.arange(5)[None]))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_gguf_file_keeps_its_blocks_in_the_native_dialect(tmp_path: Path, device: str) -> None:
    original = load(write_gguf(tmp_path / "x.gguf", "llama"), device=device)
    folder = save(original, tmp_path / "a", dialect="plait")
    native, before = load(folder, device="meta").weights(), original.weights()
    assert sum(native.blocks(name) is not None for name in native.names) == 15
    for name in native.names:
        found, expected = native.blocks(name), before.blocks(name)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert torch.equal(found.data, expected.data)
        assert torch.equal(native.read(name), before.read(name))


def test_the_original_may_change_afterwards() -> None:
    original = drawn()
    checkpoint, _ = quantise(original, "int8")
    expected = checkpoint.model(torch.arange(5)[None])
    with torch.no_grad():
        for parameter in original.model.parameters():
            parameter.mul_(2)
    assert torch.equal(checkpoint.model(torch.arange(5)[None]), expected)


def test_columns_that_are_no_groups_stay_and_that_is_said() -> None:
    odd = load(SHAPES["decoder"].replace(d_ff=72), random=True)
    with pytest.warns(PlaitNotice, match=r"ffn.down.weight, .* stay in floats: their columns are no multiple of 32"):
        checkpoint, report = quantise(odd, "int4")
    assert checkpoint.weights().blocks("decoder.layers.0.ffn.down.weight") is None
    assert "decoder.layers.0.ffn.up.weight" in {tensor.name for tensor in report}


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_twice_is_refused(tmp_path: Path, device: str) -> None:
    with pytest.raises(CheckpointError, match="in blocks of Q4_1 already, and rounding them again"):
        quantise(load(write_gguf(tmp_path / "x.gguf", "llama"), device=device), "int8")


def test_words_and_importances_that_are_none_are_refused() -> None:
    with pytest.raises(CheckpointError, match="'int4_mn' is not one of int8, int4, int4_min. Did you mean 'int4_min'"):
        quantise(drawn(), "int4_mn")
    with pytest.raises(CheckpointError, match="moments: this model has no w"):
        quantise(drawn(), "int4", moments={"w": torch.ones(1, 64, 64)})
    with pytest.raises(CheckpointError, match=r"query.weight has 64 inputs, not those of \(1, 3, 3\)"):
        quantise(drawn(), "int4", moments={QUERY: torch.ones(1, 3, 3)})
    with pytest.raises(CheckpointError, match=r"inputs of .*query.weight were not all finite"):
        quantise(drawn(), "int4", moments={QUERY: torch.full((1, 64, 64), float("nan"))})


# Files


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("{", "this metadata is '{', not a JSON object"),
        ('{"x": "Q4_0"}', "names the tensor 'x', which is not stored"),
        (json.dumps({QUERY: "Q9"}), "in blocks of 'Q9'; plait reads Q4_0"),
        (json.dumps({QUERY: "Q8_0"}), r"U8 of shape \[64, 36\], are no rows of Q8_0 blocks, U8 of 34 bytes each"),
        (json.dumps({"decoder.norm.weight": "Q4_0"}), r"F32 of shape \[64\], are no rows"),
        (None, r"config.json: blocks is \['Q4_0', 'Q8_0'\], but the weights are in \[\]"),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path: Path, said: str | None, message: str) -> None:
    folder = save(quantise(drawn(), "int4")[0], tmp_path / "a")
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors, folder / "model.safetensors", metadata={} if said is None else {"plait.blocks": said})
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_the_source_says_what_the_matrix_is(tmp_path: Path) -> None:
    folder = save(quantise(drawn(), "int4_min")[0], tmp_path / "a")
    source = SafetensorsSource([folder / "model.safetensors"])
    assert (source.shape(QUERY), source.stored_type(QUERY)) == ((64, 64), "Q4_1")
    assert source.read(QUERY, torch.bfloat16).dtype == torch.bfloat16
    assert len(source.raw(QUERY)) == 64 * 2 * 20


# Calibration


@pytest.mark.parametrize("name", SHAPES)
def test_calibration_sees_every_input(name: str) -> None:
    architecture = SHAPES[name]
    original = Checkpoint(architecture=architecture, model=drawn(name).model, tokenizer=Letters())  # type: ignore[arg-type]
    seen = calibrate(original, ["some text to read " * 4, "", "and more"], length=16)
    looked_up = {"source_embedding.tokens.weight", *([] if architecture.tied else ["embedding.tokens.weight"])}
    assert set(seen) == set(block_types(architecture, "int4")) - looked_up
    columns = {n: original.weights().shape(n)[1] for n in seen}
    assert all(
        seen[n].shape == (1, columns[n], columns[n]) and seen[n].diagonal(dim1=1, dim2=2).sum() > 0 for n in seen
    )
    _, plain = quantise(original, "int4")
    _, careful = quantise(original, "int4", moments=seen)
    for before, after in zip(plain, careful, strict=True):
        assert before.outputs is None
        assert (after.outputs is None) == (after.name in looked_up)
    by_hand = {}
    layer = original.model.get_submodule(next(n for n in seen if "ffn.up" in n).removesuffix(".weight"))
    handle = layer.register_forward_pre_hook(lambda _, inputs: by_hand.setdefault("x", inputs[0].detach()))
    calibrated = calibrate(original, ["abc"])
    handle.remove()
    x = by_hand["x"].flatten(0, -2)
    assert torch.allclose(calibrated[next(n for n in seen if "ffn.up" in n)][0], x.t() @ x / len(x), atol=1e-6)
    query, key = (calibrated[next(n for n in seen if f"attention.{part}" in n)] for part in ("query", "key"))
    assert query is key
    assert not any(module._forward_pre_hooks for module in original.model.modules())


def test_without_what_it_needs_calibration_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no tokenizer to read texts with"):
        calibrate(drawn(), ["x"])
    with_letters = Checkpoint(architecture=SHAPES["decoder"], model=drawn().model, tokenizer=Letters())  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="no token in these texts"):
        calibrate(with_letters, [""])
    bare = Checkpoint(architecture=SHAPES["decoder"], model=drawn(device="meta").model, tokenizer=Letters())  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="on the meta device"):
        calibrate(bare, ["x"])
