"""Adapters in PEFT's format: read, written, merged, against the reference library's own modules and PEFT itself."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import plait
from plait.architecture import Architecture, Classification
from plait.checkpoint import Adapter, AdapterError, Checkpoint, PlaitNotice, merge, read_adapter, save_adapter
from plait.checkpoint.adapter import LowRank
from plait.training import lora
from tests.families.making import answer, checkpoint
from tests.models import random_model, random_tokens

TOKENS = torch.tensor([[4, 9, 31, 7, 22, 50, 13, 8, 44, 5]])
SHAPE = Architecture(vocab_size=20, d_model=24, n_heads=6, n_kv_heads=3, d_ff=20, n_decoder_layers=2, position="rope")
OUTER = "base_model.model."


def write(folder: Path, tensors: dict[str, Tensor], **settings: Any) -> Path:
    """A folder as PEFT writes it."""
    folder.mkdir(parents=True)
    save_file(
        {OUTER + name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "adapter_model.safetensors"
    )
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": [], **settings}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def foreign(model: Any, ends: tuple[str, ...], folder: Path) -> dict[str, Tensor]:
    """An adapter of the reference model's modules that end so, in ``folder``; and what it adds to each weight."""
    generator = torch.Generator().manual_seed(3)
    tensors: dict[str, Tensor] = {}
    added: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if name.endswith(ends):
            by_rows = type(module).__name__ != "Conv1D"  # which keeps (in, out)
            out, width = module.weight.shape if by_rows else module.weight.t().shape
            down, up = (torch.randn(shape, generator=generator) * 0.2 for shape in ((3, width), (out, 3)))
            tensors |= {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}
            added[f"{name}.weight"] = 2 * (up @ down if by_rows else (up @ down).t())
    write(folder, tensors, target_modules=list(ends), lora_dropout=0.25)
    return added


@pytest.mark.parametrize(
    ("recipe", "ends"),
    [
        ("llama", ("q_proj", "down_proj")),
        ("gpt2", ("c_attn", "mlp.c_proj")),  # one matrix for q, k and v, as (in, out)
        ("phi3", ("qkv_proj", "gate_up_proj")),
        ("falcon-40b", ("query_key_value", "dense")),  # q, k and v of a group in turn
        ("t5", ("q", "wo", "EncDecAttention.v")),
        ("bert", ("query", "output.dense")),
        ("albert", ("value", "ffn")),  # one layer, several times
    ],
)
def test_what_peft_adds_to_the_reference_is_what_plait_adds(
    recipe: str, ends: tuple[str, ...], reference: ModuleType, tmp_path: Path
) -> None:
    model, *_ = checkpoint(reference, recipe, tmp_path / "base")
    added = foreign(model, ends, tmp_path / "adapter")
    assert added
    state = dict(model.named_parameters())
    with torch.no_grad():
        for name, update in added.items():
            state[name].add_(update)
    source = {"source": TOKENS[:, :6]} if recipe == "t5" else {}
    inputs = {"input_ids": TOKENS[:, :6], "decoder_input_ids": TOKENS} if source else {"input_ids": TOKENS}
    expected = answer(model, inputs)
    merged = plait.load(tmp_path / "base", adapter=tmp_path / "adapter")
    assert (merged.model(TOKENS, **source) - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)
    # Beside the weights instead of in them, and written and read again
    base = plait.load(tmp_path / "base")
    adapter = read_adapter(tmp_path / "adapter", base)
    assert adapter.dropout == 0.25
    beside = lora.put(base.model, adapter)
    assert (base.model.eval()(TOKENS, **source) - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)
    beside.detach()
    save_adapter(adapter, base, tmp_path / "again")
    before, after = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("adapter", "again"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def drawn(model: plait.Transformer, rank: int = 3, **settings: Any) -> Adapter:
    """An adapter that changes what it is put on."""
    attached = lora.attach(model, rank=rank, **settings)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    adapter = attached.adapter()
    attached.detach()
    return adapter


def test_parts_of_one_foreign_module_are_blocks_of_its_update(reference: ModuleType, tmp_path: Path) -> None:
    """q and v of GPT-2, each with matrices of its own, are one update of c_attn of twice the rank, and k gets 0."""
    model, *_ = checkpoint(reference, "gpt2", tmp_path / "base")
    base = plait.load(tmp_path / "base")
    adapter = drawn(base.model, targets=["query", "value"])
    save_adapter(adapter, base, tmp_path / "adapter")
    stored = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    name = f"{OUTER}transformer.h.0.attn.c_attn"
    down, up = stored[f"{name}.lora_A.weight"], stored[f"{name}.lora_B.weight"]
    width = down.shape[1]
    assert down.shape == (6, width) and up.shape == (3 * width, 6) and not up[width : 2 * width].any()
    again = read_adapter(tmp_path / "adapter", base)
    assert again.updates.keys() == adapter.updates.keys()
    for matrix, update in adapter.updates.items():
        assert torch.equal(again.updates[matrix].down, update.down) and torch.equal(again.updates[matrix].up, update.up)
        assert again.updates[matrix].scale == update.scale
    with torch.no_grad():
        for i, block in enumerate(model.transformer.h):
            prefix = f"{OUTER}transformer.h.{i}.attn.c_attn"
            down, up = stored[f"{prefix}.lora_A.weight"], stored[f"{prefix}.lora_B.weight"]
            block.attn.c_attn.weight += 16.0 / 3 * (up @ down).t()
    merge(base, adapter)
    assert (base.model(TOKENS) - answer(model, {"input_ids": TOKENS})).abs().max() < 1e-4


def test_ranks_and_scales_of_single_modules_are_kept(tmp_path: Path) -> None:
    base = Checkpoint(architecture=SHAPE, model=random_model(SHAPE, dtype=torch.float32))
    adapter = drawn(base.model)
    first = next(iter(adapter.updates))
    update = adapter.updates[first]
    other = LowRank(torch.cat([update.down, update.down]), torch.cat([update.up, update.up], 1), 0.7)
    adapter = Adapter(updates={**adapter.updates, first: other})
    save_adapter(adapter, base, tmp_path / "adapter")
    again = read_adapter(tmp_path / "adapter", base)
    assert {name: u.scale for name, u in again.updates.items()} == pytest.approx(
        {name: u.scale for name, u in adapter.updates.items()}
    )
    assert torch.equal(again.updates[first].up, other.up)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["rank_pattern"] == {first.removesuffix(".weight"): 6}


def tiny(dtype: torch.dtype, scale: float) -> tuple[Checkpoint, Adapter]:
    """One 64 x 64 matrix of N(0, 1), and an update of rank 4 that is ``scale`` times as large as can be."""
    a = Architecture(vocab_size=8, d_model=64, n_heads=4, d_ff=8, n_decoder_layers=1, norm="rmsnorm")
    model = plait.Transformer(a)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    name = "decoder.layers.0.attention.query.weight"
    update = LowRank(*(torch.randn(shape, generator=generator) for shape in ((4, 64), (64, 4))), scale)
    return Checkpoint(architecture=a, model=model.to(dtype)), Adapter(updates={name: update})


def test_lo1_what_rounding_takes_of_an_update_is_said_and_refused() -> None:
    base, adapter = tiny(torch.bfloat16, 1e-4)
    ((name, update),) = adapter.updates.items()
    before = base.model.get_parameter(name).detach().clone()
    with pytest.raises(AdapterError, match=r"rounding takes 9\d% of the update .* dtype='float32'"):
        merge(base, adapter)
    assert torch.equal(base.model.get_parameter(name), before)
    with pytest.warns(PlaitNotice, match="rounding takes"):
        found = merge(base, adapter, lossy=True)
    after = base.model.get_parameter(name).detach()
    assert 0.01 < float((after != before).float().mean()) < 0.08
    missed = after.double() - before.double() - update.dense(torch.float64)
    assert found.lost == pytest.approx(float(missed.norm() / update.dense(torch.float64).norm()), rel=1e-3)
    assert found.worst == (name, pytest.approx(found.lost)) and 0.9 < found.lost < 1
    # The sum is rounded once: each number is the nearest to the exact sum that the type has
    assert torch.equal(after, (before.double() + update.dense(torch.float64)).to(torch.bfloat16))
    wide, same = tiny(torch.float32, 1e-4)
    assert merge(wide, same).lost < 1e-2
    large, much = tiny(torch.bfloat16, 0.5)
    assert merge(large, much).lost < 0.01


def test_lo1_the_type_that_it_will_be_saved_in_counts(tmp_path: Path) -> None:
    """float16 is loaded as float32 on a CPU and saved as float16: a sum that only float32 holds would be lost then."""
    base, adapter = tiny(torch.float16, 1e-5)
    plait.save(base, tmp_path / "base", dialect="plait")
    save_adapter(adapter, base, tmp_path / "adapter", dialect="plait")
    with pytest.warns(PlaitNotice, match="float16"), pytest.raises(AdapterError, match="rounding takes"):
        plait.load(tmp_path / "base", adapter=tmp_path / "adapter")
    wide = plait.load(tmp_path / "base", dtype="float32", adapter=tmp_path / "adapter")
    plait.save(wide, tmp_path / "merged")
    ((name, update),) = adapter.updates.items()
    now = plait.load(tmp_path / "merged").model.get_parameter(name)
    moved = now - base.model.get_parameter(name).float()
    assert (moved - update.dense()).norm() < 0.01 * update.dense().norm()
    with pytest.warns(PlaitNotice, match="rounding takes"):  # asked for by name
        plait.load(tmp_path / "base", dtype="bfloat16", adapter=tmp_path / "adapter")


@pytest.fixture
def base(reference: ModuleType, tmp_path: Path) -> Checkpoint:
    checkpoint(reference, "llama", tmp_path / "base")
    return plait.load(tmp_path / "base")


def update_of(name: str, out: int, width: int, rank: int = 3) -> dict[str, Tensor]:
    return {f"{name}.lora_A.weight": torch.ones(rank, width), f"{name}.lora_B.weight": torch.ones(out, rank)}


def test_lo3_what_matches_nothing_is_an_error(base: Checkpoint, tmp_path: Path) -> None:
    layer = "model.layers.0.self_attn"
    good = update_of(f"{layer}.q_proj", 60, 48)
    read_adapter(write(tmp_path / "good", good, target_modules=["q_proj"]), base)
    with pytest.raises(AdapterError, match="target_modules names 'down_proj'"):
        read_adapter(write(tmp_path / "a", good, target_modules=["q_proj", "down_proj"]), base)
    with pytest.raises(AdapterError, match="target_modules names 'proj'"):  # whole words, not ends of them
        read_adapter(write(tmp_path / "b", good, target_modules=["q_proj", "proj"]), base)
    for number, (extra, said) in enumerate(
        {
            f"{layer}.xq_proj": "no place for model.layers.0.self_attn.xq_proj.lora_A",
            "model.layers.7.self_attn.q_proj": "no place for model.layers.7",
        }.items()
    ):
        with pytest.raises(AdapterError, match=said):
            read_adapter(write(tmp_path / f"c{number}", {**good, **update_of(extra, 60, 48)}), base)
    lonely = {**good, f"{layer}.k_proj.lora_A.weight": torch.ones(3, 48)}
    with pytest.raises(AdapterError, match="k_proj.lora_A.weight"):
        read_adapter(write(tmp_path / "d", lonely), base)
    with pytest.raises(AdapterError, match="it changes nothing"):
        read_adapter(write(tmp_path / "e", {}), base)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"use_dora": True}, "use_dora is True"),
        ({"init_lora_weights": "pissa"}, "changed the weights beside"),
        ({"r": 4}, "has r 4 .* have r 3"),
        ({"rank_pattern": {"q_proj": 2}}, "has r 2 .* have r 3"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
    ],
)
def test_settings_that_plait_would_not_follow_are_refused(
    base: Checkpoint, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    tensors = update_of("model.layers.0.self_attn.q_proj", 60, 48)
    with pytest.raises(AdapterError, match=said):
        read_adapter(write(tmp_path / "adapter", tensors, **settings), base)


def test_files_and_shapes_that_are_wrong_are_refused(base: Checkpoint, tmp_path: Path) -> None:
    folder = write(tmp_path / "a", update_of("model.layers.0.self_attn.q_proj", 58, 48))
    with pytest.raises(AdapterError, match=r"q_proj: its update is \(58, 3\)"):
        read_adapter(folder, base)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(AdapterError, match="a pickle instead"):
        read_adapter(folder, base)
    with pytest.raises(AdapterError, match="there is no such file"):
        plait.load(tmp_path / "base", adapter=tmp_path / "nowhere")
    adapter = drawn(base.model)
    with pytest.raises(AdapterError, match="choose another"):
        save_adapter(adapter, base, tmp_path / "base", overwrite=True)
    save_adapter(adapter, base, tmp_path / "b")
    with pytest.raises(AdapterError, match="choose another"):
        save_adapter(adapter, base, tmp_path / "b")
    save_adapter(adapter, base, tmp_path / "b", overwrite=True)


def test_a_scale_by_the_root_of_the_rank_and_by_patterns(base: Checkpoint, tmp_path: Path) -> None:
    tensors = update_of("model.layers.0.self_attn.q_proj", 60, 48) | update_of("model.layers.1.mlp.up_proj", 44, 48)
    folder = write(tmp_path / "a", tensors, use_rslora=True, alpha_pattern={r"layers\.1.*up_proj": 12})
    updates = read_adapter(folder, base).updates
    assert updates["decoder.layers.0.attention.query.weight"].scale == pytest.approx(6 / 3**0.5)
    assert updates["decoder.layers.1.ffn.up.weight"].scale == pytest.approx(12 / 3**0.5)


def test_lo5_a_trained_head_is_there_on_every_way_of_loading(tmp_path: Path) -> None:
    a = SHAPE.replace(head=Classification(labels=3, pooling="last"))
    base = Checkpoint(architecture=a, model=random_model(a, dtype=torch.float32))
    plait.save(base, tmp_path / "base")
    adapter = drawn(base.model, whole=["head.*"])
    assert adapter.whole.keys() == {"head.output.weight", "head.output.bias"}
    save_adapter(adapter, base, tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["modules_to_save"] == ["head.output"]
    merged = plait.load(tmp_path / "base", adapter=tmp_path / "adapter").model
    beside = plait.load(tmp_path / "base")
    lora.put(beside.model, read_adapter(tmp_path / "adapter", beside))
    for name, value in adapter.whole.items():
        assert torch.equal(merged.get_parameter(name), value) and torch.equal(beside.model.get_parameter(name), value)
    tokens = random_tokens(2, 7)
    assert (merged(tokens) - beside.model.eval()(tokens)).abs().max() < 1e-5


def test_convert_merges_and_keeps_the_names(
    base: Checkpoint, tmp_path: Path, plait_command: Callable[..., CompletedProcess[str]]
) -> None:
    adapter = drawn(base.model)
    save_adapter(adapter, base, tmp_path / "adapter")
    done = plait_command("convert", tmp_path / "base", tmp_path / "merged", "--adapter", tmp_path / "adapter")
    assert done.returncode == 0, done.stderr
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "merged"))
    assert before.keys() == after.keys()
    merge(base, adapter)
    assert torch.equal(plait.load(tmp_path / "merged").model(TOKENS), base.model(TOKENS))


def test_weights_beside_which_adapters_hang_are_not_taken_without_them(base: Checkpoint, tmp_path: Path) -> None:
    lora.attach(base.model, rank=2)
    with pytest.raises(plait.CheckpointError, match="adapters hang on this model"):
        plait.save(base, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT asks the library for what it calls otherwise now
@pytest.mark.parametrize("recipe", ["llama", "gpt2", "phi3", "falcon-40b", "t5", "bert", "marian"])
def test_peft_itself_reads_what_plait_writes_and_the_other_way(
    recipe: str, reference: ModuleType, tmp_path: Path
) -> None:
    """PLAIT_PEFT names a folder with peft, accelerate and psutil, installed there without what they ask for."""
    folder = os.environ.get("PLAIT_PEFT")
    if not folder or not (Path(folder) / "peft").is_dir():
        pytest.skip("PLAIT_PEFT does not name a folder in which peft is installed")
    if folder not in sys.path:
        sys.path.append(folder)
    assert importlib.util.find_spec("peft")
    peft = importlib.import_module("peft")
    model, *_ = checkpoint(reference, recipe, tmp_path / "base")
    base = plait.load(tmp_path / "base", dtype="float64")
    adapter = drawn(base.model)
    save_adapter(adapter, base, tmp_path / "adapter")
    theirs = peft.PeftModel.from_pretrained(model.double(), tmp_path / "adapter").double().eval()
    source = {"source": TOKENS[:, :6]} if base.architecture.kind == "encoder-decoder" else {}
    inputs = {"input_ids": TOKENS[:, :6], "decoder_input_ids": TOKENS} if source else {"input_ids": TOKENS}
    merge(base, adapter)
    expected = base.model(TOKENS, **source)
    assert (answer(theirs, inputs) - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)
    theirs.save_pretrained(tmp_path / "theirs")
    again = plait.load(tmp_path / "base", dtype="float64", adapter=tmp_path / "theirs")
    assert torch.equal(again.model(TOKENS, **source), expected)
