"""SmolLM2-135M goes on from what it is, on chats of one manner: by LoRA and in full, as ``plait train`` does it."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import plait
from plait.checkpoint import read_adapter, save
from plait.data.batch import UNCOUNTED
from plait.training import lora
from plait.training.judging import judge
from plait.training.metrics import read_metrics
from plait.training.recipe import read_recipe
from plait.training.resolve import Resolved, decide, resolve
from tests.training.chatting import RECIPES, chats, write_chats

FEW = ["--run.epochs", "none", "--run.threads", "1", "--schedule.warmup", "2", "--evaluate.samples", "0"]
CHAT = next(messages[:2] for messages in chats())


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, and the loss on held-out chats before and after."""

    folder: Path
    before: float
    after: float


def loss_on(model: plait.Checkpoint, chats: Path) -> float:
    return judge(model, [str(chats)], objective="chat", metrics=["loss"])[0]["loss"]


def ran(recipe: str, model: Path, folder: Path, steps: int) -> Run:
    train, valid = write_chats(folder)
    options = ["--model.from", model, "--data.train", train, "--data.valid", valid, "--data.valid_fraction", "0"]
    options += ["--run.steps", steps, "--evaluate.every", steps, *FEW]
    command = [sys.executable, "-m", "plait", "train", RECIPES / f"{recipe}.toml", "--out", folder / "run", *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder / "run" / "states")  # gigabytes
    (evaluation,) = [line for line in read_metrics(folder / "run" / "metrics.jsonl") if line["kind"] == "evaluation"]
    before = loss_on(plait.load(model, dtype="float32"), valid)
    return Run(folder / "run", before, evaluation["loss"])


@pytest.fixture(scope="module")
def adapted(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("adapted")
    yield ran("smollm2-lora", smollm2, folder, steps=12)
    shutil.rmtree(folder)


def logits(model: torch.nn.Module, ids: Tensor) -> Tensor:
    with torch.no_grad():
        found = model.eval()(ids)
    return found if isinstance(found, Tensor) else found.logits


def far(one: Tensor, other: Tensor) -> float:
    """The largest difference, as a share of the largest logit."""
    return float((one - other).abs().max() / other.abs().max())


def asked(checkpoint: plait.Checkpoint) -> Tensor:
    assert checkpoint.tokenizer is not None
    return torch.tensor([checkpoint.tokenizer.chat(CHAT)])


@pytest.mark.slow
def test_by_lora_held_out_chats_get_likelier(adapted: Run) -> None:
    assert adapted.after < 0.8 * adapted.before


@pytest.mark.slow
def test_merged_is_the_adapter_beside(adapted: Run, smollm2: Path) -> None:
    """Beside the weights, merged on loading, and merged in the folder that a run leaves."""
    base = plait.load(smollm2, dtype="float32")
    ids = asked(base)
    plain = logits(base.model, ids)
    attached = lora.put(base.model, read_adapter(adapted.folder / "adapter", base))
    beside = logits(base.model, ids)
    attached.detach()
    assert far(beside, plain) > 0.01
    assert (
        far(logits(plait.load(smollm2, dtype="float32", adapter=adapted.folder / "adapter").model, ids), beside) < 1e-5
    )
    kept = plait.load(adapted.folder / "model")
    assert far(logits(kept.model, ids), beside) < 1e-5
    # What the run measured last, the adapter beside, is what its folder is worth
    assert loss_on(kept, adapted.folder.parent / "valid.jsonl") == pytest.approx(adapted.after, rel=1e-5)


@pytest.mark.slow
def test_the_reference_reads_what_lora_leaves(adapted: Run, reference: ModuleType) -> None:
    kept = plait.load(adapted.folder / "model")
    theirs = reference.AutoModelForCausalLM.from_pretrained(adapted.folder / "model", dtype=torch.float32)
    words = reference.AutoTokenizer.from_pretrained(adapted.folder / "model")
    ids = asked(kept)
    assert words.apply_chat_template(CHAT, add_generation_prompt=True)["input_ids"] == ids[0].tolist()
    assert far(logits(kept.model, ids), logits(theirs, ids)) < 1e-5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT asks the library for what it calls otherwise now
def test_peft_reads_the_adapter(adapted: Run, smollm2: Path, reference: ModuleType, tmp_path: Path) -> None:
    """PLAIT_PEFT names a folder with peft, accelerate and psutil, installed there without what they ask for."""
    place = os.environ.get("PLAIT_PEFT")
    if not place or not (Path(place) / "peft").is_dir():
        pytest.skip("PLAIT_PEFT does not name a folder in which peft is installed")
    if place not in sys.path:
        sys.path.append(place)
    peft = importlib.import_module("peft")
    save(plait.load(smollm2, dtype="float32"), tmp_path / "base")
    base = reference.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    kept = plait.load(adapted.folder / "model")
    ids = asked(kept)
    theirs = peft.PeftModel.from_pretrained(base, adapted.folder / "adapter")
    assert far(logits(kept.model, ids), logits(theirs, ids)) < 1e-5


@pytest.mark.slow
def test_in_full_held_out_chats_get_likelier_and_the_reference_reads_it(
    smollm2: Path, reference: ModuleType, tmp_path: Path
) -> None:
    run = ran("smollm2-chat", smollm2, tmp_path, steps=8)
    assert run.after < 0.8 * run.before
    kept = plait.load(run.folder / "model")
    theirs = reference.AutoModelForCausalLM.from_pretrained(run.folder / "model", dtype=torch.float32)
    ids = asked(kept)
    assert far(logits(kept.model, ids), logits(theirs, ids)) < 1e-5
    assert loss_on(kept, tmp_path / "valid.jsonl") == pytest.approx(run.after, rel=1e-5)
    shutil.rmtree(tmp_path)


def resolved(folder: Path, model: Path, *options: str) -> Resolved:
    train, _ = write_chats(folder)
    given = ["--model.from", str(model), "--data.train", str(train), "--data.cache", str(folder)]
    return resolve(decide(read_recipe(RECIPES / "smollm2-lora.toml", [*given, *options])))


@pytest.mark.slow
def test_the_loss_is_on_answers_and_their_end_alone(smollm2: Path, tmp_path: Path) -> None:
    run = resolved(tmp_path, smollm2, "--data.valid_fraction", "0")
    tokenizer = run.checkpoint.tokenizer
    assert tokenizer is not None
    (batch,) = run.train.step(0)
    for ids, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        rendered = tokenizer.decode(ids)
        assert rendered.startswith("<|im_start|>system\nYou are a ship's mate.<|im_end|>\n<|im_start|>user\n")
        answers = [turn.partition("<|im_end|>")[0] for turn in rendered.split("<|im_start|>assistant\n")[1:]]
        assert tokenizer.decode(target for target in targets if target != UNCOUNTED) == "".join(
            f"{answer}<|im_end|>" for answer in answers
        )
        assert answers[0].startswith("Aye, captain!")
