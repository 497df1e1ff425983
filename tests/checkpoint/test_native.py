from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from plait.architecture import Architecture, Classification, EncoderDifferences, LayerType, RelativeBias, Rope
from plait.checkpoint import CheckpointError, DecodeRules, load, save
from tests.checkpoint.making import llama_tensors, logits, read_folder, same_tensors, snapshot, write_llama

SIZE = {"vocab_size": 20, "d_model": 8, "n_heads": 2, "d_ff": 12}
SHAPES = {
    "decoder": Architecture(**SIZE, n_decoder_layers=2, position="rope", norm="rmsnorm", gated=True, tied=True),
    "translator": Architecture(
        **SIZE, n_encoder_layers=1, n_decoder_layers=2, position="sinusoidal", norm_placement="post", logit_bias=True,
        encoder=EncoderDifferences(vocab_size=11, d_ff=6),
    ),
    "encoder": Architecture(
        **SIZE, n_encoder_layers=1, position="learned", max_length=9, position_offset=2, token_types=2, d_embedding=4,
        embedding_norm=True, head="masked", head_transform="gelu", tied=True, logit_bias=True,
    ),
    "odd": Architecture(
        **SIZE, n_decoder_layers=3, position="rope", skip_scale=1.7, norm_placement="sandwich", qk_norm="per_head",
        layer_types=(LayerType(window=3, rope=Rope(theta=10.0)), LayerType(rope=None)), n_kv_heads=1, d_head=6,
    ),
    "classes": Architecture(
        **SIZE, n_encoder_layers=1, relative_bias=RelativeBias(buckets=8, max_distance=20), head_transform="tanh",
        head=Classification(labels=3, pooling="mean"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_the_native_dialect_says_anything(tmp_path: Path, name: str, dtype: str) -> None:
    checkpoint = load(SHAPES[name], random=True, dtype=dtype)
    folder = save(checkpoint, tmp_path / "a", dialect="plait")
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["plait_format"]) == ("plait", 1)
    again = load(folder)
    assert again.architecture == SHAPES[name]
    assert same_tensors(again.model.state_dict(), checkpoint.model.state_dict())
    assert same_tensors(read_folder(folder), checkpoint.model.state_dict()), "canonical names"
    second = save(again, tmp_path / "b")
    assert snapshot(second) == snapshot(folder)


def test_a_preset_is_native_unless_a_family_is_named(tmp_path: Path) -> None:
    checkpoint = load(SHAPES["decoder"], random=True)
    config = json.loads((save(checkpoint, tmp_path / "a") / "config.json").read_text())
    assert config["model_type"] == "plait"
    config = json.loads((save(checkpoint, tmp_path / "b", dialect="llama") / "config.json").read_text())
    assert config["model_type"] == "llama"


def test_rules_and_origin_come_along_and_lead_back(tmp_path: Path) -> None:
    original = load(write_llama(tmp_path / "a"))
    native = load(save(original, tmp_path / "b", dialect="plait"))
    assert native.rules == original.rules == DecodeRules(bos=1, end=(2,))
    assert torch.equal(logits(native), logits(original))
    back = save(native, tmp_path / "c", dialect="hf")
    assert json.loads((back / "config.json").read_text())["model_type"] == "llama"
    assert same_tensors(read_folder(back), llama_tensors())
    assert load(back).rules == original.rules


def test_a_family_that_cannot_say_it_refuses_naming_the_knob(tmp_path: Path) -> None:
    checkpoint = load(SHAPES["odd"], random=True)
    with pytest.raises(ValueError, match="no family can say this architecture; save it with dialect='plait'"):
        save(checkpoint, tmp_path / "a", dialect="hf")
    with pytest.raises(ValueError, match="skip_scale"):
        save(load(SHAPES["decoder"].replace(skip_scale=1.5), random=True), tmp_path / "b", dialect="llama")
    with pytest.raises(CheckpointError, match="dialect: 'lama' is not one of hf, gguf, plait, .* Did you mean 'llama'"):
        save(checkpoint, tmp_path / "c", dialect="lama")
    assert list(tmp_path.iterdir()) == [], "nothing was written"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plait_format": 2}, "plait_format is 2, and this plait reads 1"),
        ({"plait_format": ...}, "plait_format is None"),
        ({"extra": 1}, "format 1 has no key 'extra'; it has architecture, "),
        ({"decode_rule": {}}, "format 1 has no key 'decode_rule'; did you mean 'decode_rules'"),
        ({"architecture": {}}, "this field has no default"),
        ({"decode_rules": {"ends": [1]}}, "there is no such rule; did you mean 'end'"),
    ],
)
def test_another_format_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    folder = save(load(SHAPES["decoder"], random=True), tmp_path / "a")
    config = {**json.loads((folder / "config.json").read_text()), **change}
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))
    with pytest.raises(ValueError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("lost", "message"), [(True, "1 tensors are not stored: decoder.norm.weight"), (False, "1 tensors have no place")]
)
def test_ld17_native_tensors_must_be_exactly_the_parameters(tmp_path: Path, lost: bool, message: str) -> None:
    from safetensors.torch import save_file

    folder = save(load(SHAPES["decoder"], random=True), tmp_path / "a")
    tensors = read_folder(folder)
    if lost:
        del tensors["decoder.norm.weight"]
    else:
        tensors["decoder.norm.scale"] = torch.ones(8)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_labels_go_along(tmp_path: Path) -> None:
    architecture = Architecture(
        **SIZE, n_encoder_layers=1, norm_placement="post", position="learned", max_length=9, token_types=2,
        embedding_norm=True, activation="gelu", norm_eps=1e-12, head=Classification(labels=3), head_transform="tanh",
    )  # fmt: skip
    folder = save(load(architecture, random=True), tmp_path / "a", dialect="bert")
    config = json.loads((folder / "config.json").read_text())
    names = {"0": "calm", "1": "glad", "2": "sad"}
    (folder / "config.json").write_text(json.dumps(config | {"id2label": names, "label2id": {"calm": 0}}))
    first = load(folder)
    native = load(save(first, tmp_path / "b", dialect="plait"))
    back = load(save(native, tmp_path / "c", dialect="hf"))
    assert first.labels == native.labels == back.labels == ("calm", "glad", "sad")
    assert json.loads((tmp_path / "c" / "config.json").read_text())["id2label"] == names
    assert load(SHAPES["classes"], random=True).labels is None
