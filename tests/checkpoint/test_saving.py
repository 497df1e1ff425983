from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from plait.checkpoint import CheckpointError, PlaitNotice, load, save
from plait.checkpoint.replacing import whole_folder
from tests.checkpoint.making import (
    HEAD,
    llama_tensors,
    logits,
    read_folder,
    same_tensors,
    snapshot,
    write_llama,
    write_shards,
)

INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_saved_back_is_what_was_loaded(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = write_llama(tmp_path / "a", llama_tensors(dtype=dtype), torch_dtype="anything", custom={"kept": [1, None]})
    generation = {"eos_token_id": [2, 6], "temperature": 0.5, "do_sample": True, "made_up": None}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    with pytest.warns(PlaitNotice, match="not known to plait and were not used: custom"):
        checkpoint = load(folder)
    again = save(checkpoint, tmp_path / "b")
    assert same_tensors(read_folder(again), read_folder(folder))
    assert json.loads((again / "config.json").read_text()) == json.loads((folder / "config.json").read_text())
    assert json.loads((again / "generation_config.json").read_text()) == generation
    with pytest.warns(PlaitNotice):
        twice = load(again)
    assert twice.rules == checkpoint.rules
    assert twice.layout.source.metadata == {"format": "pt"}  # type: ignore[union-attr]


def test_leftovers_are_kept_by_reference_and_written_back(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.rand(1)
    checkpoint = load(write_llama(tmp_path / "a", tensors))
    assert checkpoint.layout.binding.leftovers == ("model.layers.0.self_attn.rotary_emb.inv_freq",)
    assert same_tensors(read_folder(save(checkpoint, tmp_path / "b")), tensors)


def test_leftovers_that_another_dialect_cannot_hold_are_named(tmp_path: Path) -> None:
    names = [f"model.layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(2)]
    tensors = llama_tensors() | {name: torch.rand(1) for name in names}
    checkpoint = load(write_llama(tmp_path / "a", tensors))
    with pytest.warns(PlaitNotice, match=f"dialect 'plait' has no place for {', '.join(names)}, which came along"):
        native = save(checkpoint, tmp_path / "b", dialect="plait")
    assert torch.equal(logits(load(native)), logits(checkpoint))
    save(load(native), tmp_path / "c")  # nothing more to lose


def test_a_changed_weight_is_the_only_one_that_changes(tmp_path: Path) -> None:
    before = llama_tensors(dtype=torch.bfloat16)
    checkpoint = load(write_llama(tmp_path / "a", before))
    with torch.no_grad():
        checkpoint.model.state_dict()["head.output.weight"].add_(1)
    after = read_folder(save(checkpoint, tmp_path / "b"))
    assert torch.equal(after[HEAD], before[HEAD] + 1)
    assert same_tensors({**after, HEAD: before[HEAD]}, before)


def test_ld15_a_model_moved_to_another_type_is_saved_in_it_and_says_so(tmp_path: Path) -> None:
    checkpoint = load(write_llama(tmp_path / "a"))
    checkpoint.model.to(torch.bfloat16)
    folder = save(checkpoint, tmp_path / "b")
    assert {tensor.dtype for tensor in read_folder(folder).values()} == {torch.bfloat16}
    assert json.loads((folder / "config.json").read_text())["torch_dtype"] == "bfloat16"
    asked = save(load(tmp_path / "a", dtype="float64"), tmp_path / "c")
    assert {tensor.dtype for tensor in read_folder(asked).values()} == {torch.float64}


def test_changed_rules_are_saved_back(tmp_path: Path) -> None:
    checkpoint = load(write_llama(tmp_path / "a"))
    rules = dataclasses.replace(checkpoint.rules, end=(2, 5), temperature=0.3, sample=True, pad=7)
    again = load(save(dataclasses.replace(checkpoint, rules=rules), tmp_path / "b"))
    assert again.rules == rules
    assert torch.equal(logits(again), logits(checkpoint))


def test_weights_beyond_the_limit_are_spread_over_shards(tmp_path: Path) -> None:
    tensors = llama_tensors()
    folder = save(load(write_llama(tmp_path / "a")), tmp_path / "b", max_shard_bytes=5000)
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    assert files == [f"model-{i:05}-of-{len(files):05}.safetensors" for i in range(1, len(files) + 1)]
    assert len(files) > 2
    assert same_tensors(read_folder(folder), tensors)
    index = json.loads((folder / INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors.values())
    assert index["weight_map"].keys() == tensors.keys()
    assert not (folder / "model.safetensors").exists()
    assert all((folder / name).stat().st_size < 5000 + 2500 for name in files)
    assert torch.equal(logits(load(folder)), logits(load(tmp_path / "a")))
    with pytest.raises(CheckpointError, match="max_shard_bytes: 0 holds nothing"):
        save(load(folder), tmp_path / "c", max_shard_bytes=0)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_every_file_has_the_mode_that_the_umask_grants(tmp_path: Path, umask: int) -> None:
    checkpoint = load(write_llama(tmp_path / "a"))
    before = os.umask(umask)
    try:
        one, many = save(checkpoint, tmp_path / "b"), save(checkpoint, tmp_path / "c", max_shard_bytes=5000)
    finally:
        os.umask(before)
    files = [*one.iterdir(), *many.iterdir()]
    assert len(files) > 5
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~umask}


def test_an_existing_folder_is_refused_unless_told(tmp_path: Path) -> None:
    checkpoint = load(write_llama(tmp_path / "a"))
    target = write_llama(tmp_path / "b", llama_tensors(seed=5))
    before = snapshot(target)
    with pytest.raises(
        CheckpointError, match="it exists and is not empty; choose another folder, or say overwrite=True"
    ):
        save(checkpoint, target)
    assert snapshot(target) == before
    assert same_tensors(read_folder(save(checkpoint, target, overwrite=True)), llama_tensors())
    (tmp_path / "empty").mkdir()
    assert same_tensors(read_folder(save(checkpoint, tmp_path / "empty")), llama_tensors())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "empty"], "nothing is left beside"


def test_what_is_no_checkpoint_is_never_overwritten(tmp_path: Path) -> None:
    checkpoint = load(write_llama(tmp_path / "a"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(CheckpointError, match="holds other things than a checkpoint"):
        save(checkpoint, tmp_path / "home", overwrite=True)
    with pytest.raises(CheckpointError, match="there is a file of this name"):
        save(checkpoint, tmp_path / "home" / "letter.txt", overwrite=True)
    assert snapshot(tmp_path / "home") == {"letter.txt": b"dear"}


def test_a_checkpoint_may_be_saved_over_itself(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "a", {**llama_tensors(), "rotary_emb.inv_freq": torch.rand(3)})
    checkpoint = load(folder)
    with torch.no_grad():
        checkpoint.model.state_dict()["head.output.weight"].add_(1)
    for _ in range(2):
        save(checkpoint, folder, overwrite=True)
        assert torch.equal(logits(load(folder)), logits(checkpoint))


def test_ld14_another_variants_files_survive(tmp_path: Path) -> None:
    target = write_shards(tmp_path / "b", llama_tensors(seed=1), n=3)
    write_shards(target, llama_tensors(seed=2), n=2, prefix="model.fp16")
    (target / "README.md").write_text("mine")
    (target / "onnx").mkdir()
    (target / "onnx" / "model.onnx").write_bytes(b"onnx")
    (target / "onnx" / "config.json").write_bytes(b"theirs")
    (target / "link").symlink_to("onnx")
    (target / "hollow").mkdir()
    kept = {
        name: data
        for name, data in snapshot(target).items()
        if "fp16" in name or name.split("/")[0] in ("README.md", "onnx", "link")
    }
    assert len(kept) == 3 + 1 + 2
    save(load(write_llama(tmp_path / "a")), target, overwrite=True)
    after = snapshot(target)
    assert {name: after[name] for name in kept} == kept
    assert after.keys() - kept.keys() == {"config.json", "model.safetensors"}, "the old shards and index are gone"
    assert (target / "link").is_symlink()
    assert (target / "hollow").is_dir()
    assert torch.equal(logits(load(target)), logits(load(tmp_path / "a")))


@pytest.mark.parametrize("old", [1, 2, 3])
def test_ld14_a_new_set_of_shards_under_an_old_one(tmp_path: Path, old: int) -> None:
    target = write_shards(tmp_path / "b", llama_tensors(seed=1), n=old)
    checkpoint = load(write_llama(tmp_path / "a"))
    save(checkpoint, target, overwrite=True, max_shard_bytes=9000)
    places = json.loads((target / INDEX).read_text())["weight_map"]
    assert {path.name for path in target.glob("*.safetensors")} == set(places.values())
    assert same_tensors(read_folder(target), llama_tensors())


def test_ld14_files_that_no_index_names_stay(tmp_path: Path) -> None:
    target = write_shards(tmp_path / "b", llama_tensors(seed=1), n=3)
    write_shards(target, llama_tensors(seed=2), n=2)  # the three are orphans now
    save(load(write_llama(tmp_path / "a")), target, overwrite=True)
    orphans = {f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)}
    assert {path.name for path in target.glob("*.safetensors")} == {"model.safetensors", *orphans}
    assert torch.equal(logits(load(target)), logits(load(tmp_path / "a")))


def test_an_index_that_names_files_outside_costs_nothing_there(tmp_path: Path) -> None:
    save_file({"x": torch.ones(1)}, tmp_path / "outside.safetensors")
    target = write_llama(tmp_path / "b")
    (target / INDEX).write_text(json.dumps({"weight_map": {"x": "../outside.safetensors", "y": "/etc/hostname"}}))
    save(load(write_llama(tmp_path / "a")), target, overwrite=True)
    assert (tmp_path / "outside.safetensors").exists()
    assert not (target / INDEX).exists()


# What fails, or stops, at whatever moment: the old folder is there as it was, or the new one is there whole.


def test_a_failure_at_any_write_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    checkpoint = load(write_llama(tmp_path / "a"))
    target = write_llama(tmp_path / "b", llama_tensors(seed=5))
    before = snapshot(target)
    seen = 0
    for name in ("fsync", "replace", "link", "mkdir"):
        real: Any = getattr(os, name)
        for moment in range(50):
            calls = iter(range(1000))

            def failing(*args: Any, real: Any = real, moment: int = moment, calls: Any = calls, **kwargs: Any) -> Any:
                if next(calls) == moment:
                    raise OSError(28, "No space left on device")
                return real(*args, **kwargs)

            with monkeypatch.context() as patch:
                patch.setattr(os, name, failing)
                try:
                    save(checkpoint, target, overwrite=True, max_shard_bytes=6000)
                except OSError:
                    seen += 1
                    if snapshot(target) == before:
                        continue
                else:
                    if next(calls) <= moment:
                        break
            # a step after the exchange failed, or a hard link became a copy: the new one is there whole
            assert same_tensors(read_folder(target), llama_tensors())
            save(load(write_llama(tmp_path / "old", llama_tensors(seed=5))), target, overwrite=True)
            before = snapshot(target)
    assert seen > 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "old"]


# Each line of the arguments is a way to end; each is tried in a child of its own, on folders of its own.
CHILD = """
import os, resource, signal, sys
import torch
torch.set_num_threads(1)
import plait.checkpoint.replacing as replacing
from plait.checkpoint import load, save

def killed_at(moment):
    real, calls = os.fsync, iter(range(1000))
    def fsync(descriptor):
        if next(calls) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(descriptor)
    os.fsync = fsync

def killed_after_exchange():
    real = replacing._exchange
    def exchange(first, second):
        real(first, second)
        os.kill(os.getpid(), signal.SIGKILL)
    replacing._exchange = exchange

for line in sys.argv[1:]:
    source, target, how, number = line.split("|")
    child = os.fork()
    if child == 0:
        checkpoint = load(source)
        if how == "disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(number), int(number)))
        elif how == "kill":
            killed_at(int(number))
        else:
            killed_after_exchange()
        try:
            save(checkpoint, target, overwrite=True)
        except OSError:
            os._exit(7)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_full_disk_or_a_kill_at_any_moment_leaves_a_whole_folder(tmp_path: Path) -> None:
    ways = [("disk", 0), ("disk", 100), ("disk", 3000), ("disk", 10000), ("kill", 0), ("kill", 2), ("exchange", 0)]
    places = [tmp_path / f"{how}-{number}" for how, number in ways]
    for place in places:
        write_llama(place / "a")
        write_llama(place / "b", llama_tensors(seed=5))
    lines = [f"{place / 'a'}|{place / 'b'}|{how}|{number}" for place, (how, number) in zip(places, ways, strict=True)]
    done = subprocess.run([sys.executable, "-c", CHILD, *lines], capture_output=True, text=True, timeout=300)
    codes = [7 if how == "disk" else -signal.SIGKILL for how, _ in ways]
    assert list(map(int, done.stdout.split())) == codes, done.stderr
    for place, (how, _) in zip(places, ways, strict=True):
        assert same_tensors(read_folder(place / "b"), llama_tensors(seed=0 if how == "exchange" else 5)), place
        assert torch.isfinite(logits(load(place / "b"))).all()
        left = {path.name for path in place.iterdir()} - {"a", "b"}
        assert how != "disk" or not left, "an error cleans up behind itself"


def test_without_an_exchange_it_takes_two_steps_and_can_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    from plait.checkpoint import replacing

    monkeypatch.setattr(replacing, "_exchange", lambda first, second: False)
    checkpoint = load(write_llama(tmp_path / "a"))
    target = write_llama(tmp_path / "b", llama_tensors(seed=5))
    before, real, calls = snapshot(target), os.replace, iter(range(9))

    def second_fails(first: Any, second: Any) -> None:
        if next(calls) == 1:
            raise OSError("no")
        real(first, second)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", second_fails)
        with pytest.raises(OSError, match="no"):
            save(checkpoint, target, overwrite=True)
    assert snapshot(target) == before
    save(checkpoint, target, overwrite=True)
    assert same_tensors(read_folder(target), llama_tensors())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_mount_point_is_refused() -> None:
    with pytest.raises(CheckpointError, match="a mount point cannot be replaced"), whole_folder(Path("/")):
        pass


def test_an_architecture_that_its_family_cannot_say_goes_native_aloud(tmp_path: Path) -> None:
    checkpoint = load(write_llama(tmp_path / "a"))
    architecture = checkpoint.architecture.replace(residual_scale=0.5)
    model = load(architecture, random=True).model
    model.load_state_dict(checkpoint.model.state_dict())
    changed = dataclasses.replace(checkpoint, architecture=architecture, model=model)
    with pytest.warns(PlaitNotice, match=r"residual_scale.*written in plait's own dialect"):
        folder = save(changed, tmp_path / "b")
    again = load(folder)
    assert again.architecture == architecture
    assert torch.equal(logits(again), logits(changed))
    assert again.rules == checkpoint.rules


def test_ld14_a_nested_transformer_is_replaced_where_it_lay(tmp_path: Path) -> None:
    from tests.checkpoint.test_pooling import write_modules

    kinds = [("Transformer", "0_Transformer"), ("Pooling", "1_Pooling")]
    for name, n in (("a", 1), ("b", 3)):
        write_modules(tmp_path / name, *kinds, pooling_mode_mean_tokens=True)
        write_shards(tmp_path / name / "0_Transformer", llama_tensors(seed=n), n=n)
    (tmp_path / "b" / "0_Transformer" / "notes.txt").write_text("mine")
    save(load(tmp_path / "a"), tmp_path / "b", overwrite=True)
    assert {path.name for path in (tmp_path / "b" / "0_Transformer").iterdir()} == {
        "config.json",
        "model.safetensors",
        "notes.txt",
    }
    assert same_tensors(read_folder(tmp_path / "b" / "0_Transformer"), llama_tensors(seed=1))
    save(load(write_llama(tmp_path / "c")), tmp_path / "b", overwrite=True)
    assert load(tmp_path / "b").pooling is None
    assert torch.equal(logits(load(tmp_path / "b")), logits(load(tmp_path / "c")))


def test_the_old_models_templates_do_not_stay(tmp_path: Path) -> None:
    from tests.text import making

    for name in ("a", "b"):
        making.tokenizer_folder(write_llama(tmp_path / name), making.byte_level(), chat_template=f"{name}'s")
    tools = tmp_path / "b" / "additional_chat_templates" / "tool_use.jinja"
    tools.parent.mkdir()
    tools.write_text("b's, with tools")
    (tools.parent / "notes.txt").write_text("mine")
    saved = load(save(load(tmp_path / "a"), tmp_path / "b", overwrite=True))
    assert saved.tokenizer is not None and saved.tokenizer.chat_template is not None
    assert (saved.tokenizer.chat_template.source, saved.tokenizer.chat_template.tool_use) == ("a's", None)
    assert (tools.parent / "notes.txt").exists()


def test_what_a_tokenizer_reads_belongs_to_the_checkpoint() -> None:
    from plait.checkpoint.folder import is_small_file
    from plait.text.folder import FILES

    for name in (*FILES, "additional_chat_templates/tool_use.jinja"):
        assert is_small_file(name), name
        assert is_small_file(f"0_Transformer/{name}", nested=True) and not is_small_file(f"0_Transformer/{name}")
    assert not is_small_file("additional_chat_templates/readme.md")
    assert not is_small_file("a/b/additional_chat_templates/tool_use.jinja", nested=True)
