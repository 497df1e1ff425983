"""lm-eval's tasks: the scores that the reference library's model gets from the same harness."""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import plait
from plait.cli.commands import main
from plait.engine import optimize
from plait.generation import ModelRunner
from plait.text import train_tokenizer
from plait.training.harness import HarnessError, adapter, run_harness

TEXTS = [
    f"the {a} cat {b} the {c} mat at noon" for a in ("big", "red") for b in ("sat on", "saw") for c in ("old", "new")
]
CHOICES = ["the", "cat", "mat at noon", "red"]
TASKS = {
    "choosing": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_choice": "choices",
        "doc_to_target": "label",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "reading": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
    },
    "writing": {
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{written}}",
        "generation_kwargs": {"until": ["e"], "max_gen_toks": 6, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    },
}


@pytest.fixture(scope="module")
def asked(reference: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small GPT-2 that the reference wrote, with a tokenizer; tasks; and the reference's own model under lm-eval."""
    if importlib.util.find_spec("lm_eval") is None:
        pytest.skip("lm-eval is not installed: plait[harness] brings it")
    folder = tmp_path_factory.mktemp("harness")
    tokenizer = train_tokenizer(TEXTS, kind="byte-bpe", vocab_size=300, specials={"bos": "<s>", "eos": "</s>"})
    torch.manual_seed(0)
    config = reference.GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=24,
        bos_token_id=tokenizer.bos,
        eos_token_id=tokenizer.eos,
        initializer_range=0.4,
    )
    model = reference.GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder / "model")
    tokenizer.save(folder / "model")
    checkpoint = plait.load(folder / "model")
    lines = [
        {"text": text[: 9 + 3 * n] if n % 2 else text, "label": n % 4, "choices": CHOICES}
        for n, text in enumerate(TEXTS)
    ]
    lines[1]["text"] += " "  # lm-eval moves it to what is scored
    runner = ModelRunner(checkpoint.model)
    for line in lines:
        (line["written"],) = adapter(checkpoint, runner).generate_until(
            [SimpleNamespace(args=(line["text"], {"until": ["e"], "max_gen_toks": 6}))]
        )
    lines[3]["written"] += "!"  # one that is wrong
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, task in TASKS.items():
        described = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(folder / "lines.jsonl")}},
            "test_split": "test",
            **task,
        }
        (folder / f"{name}.yaml").write_text(json.dumps(described))  # JSON is YAML
    return folder, checkpoint, model


@pytest.mark.filterwarnings("ignore")  # of lm-eval's own
def test_the_references_scores(
    asked: Any,
    reference: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, checkpoint, model = asked
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lm_eval import evaluator
        from lm_eval.models.huggingface import HFLM
        from lm_eval.tasks import TaskManager

        theirs = HFLM(model, tokenizer=reference.AutoTokenizer.from_pretrained(folder / "model"), batch_size=2)
        expected = evaluator.simple_evaluate(
            theirs, tasks=list(TASKS), task_manager=TaskManager(include_path=str(folder)), bootstrap_iters=1
        )["results"]
    expected = {
        task: {key.removesuffix(",none"): value for key, value in metrics.items() if isinstance(value, float)}
        for task, metrics in expected.items()
    }
    engine = optimize(checkpoint, threads=1)
    for found in (
        run_harness(checkpoint, list(TASKS), folder=folder),
        run_harness(checkpoint, list(TASKS), folder=folder, runner=engine, batch_tokens=50),
        commanded(capsys, folder, *TASKS),
    ):
        assert found.keys() == expected.keys()
        for task, values in expected.items():
            assert found[task] == pytest.approx(values, rel=1e-4), task
    assert expected["choosing"]["acc"] not in (0.0, 1.0) and 0 < expected["choosing"]["acc_stderr"] < 0.5
    assert expected["writing"]["exact_match"] == 1 - 1 / len(TEXTS)
    first = run_harness(checkpoint, ["choosing"], folder=folder, limit=2, shots=1)
    assert (
        commanded(capsys, folder, "choosing", "--limit", "2", "--shots", "1")
        == first
        != {"choosing": found["choosing"]}
    )
    assert main(["evaluate", str(folder / "model"), "--harness", "choosing", "--include-path", str(folder)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    acc = expected["choosing"]
    assert lines[2] == ["choosing", "acc", f"{acc['acc']:.4g}", "±", f"{acc['acc_stderr']:.2g}"]


def commanded(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> dict[str, dict[str, float]]:
    """What ``plait evaluate --harness`` prints: nothing but the metrics."""
    there = ["--include-path", str(folder), "--format", "json", "--threads", "1"]
    capsys.readouterr()
    assert main(["evaluate", str(folder / "model"), "--harness", *options, *there]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.filterwarnings("ignore")
def test_likelihoods_are_those_of_score_and_long_rows_are_read_in_windows(asked: Any) -> None:
    _, checkpoint, _ = asked
    answering = adapter(checkpoint, batch_tokens=30)
    pairs = [("the big cat", " sat on"), ("", "the red"), (" ".join(TEXTS), " and the mat"), ("the", " cat sat")]
    found = answering.loglikelihood([SimpleNamespace(args=pair) for pair in pairs], disable_tqdm=True)
    bos = checkpoint.tokenizer.bos
    for (before, after), (value, likeliest) in zip(pairs, found, strict=True):
        start = checkpoint.tokenizer.encode(before) or [bos]
        whole = [*start, *checkpoint.tokenizer.encode(after)][-25:]
        logits = checkpoint.model(torch.tensor([whole[:-1]])).log_softmax(-1)[0]
        n = len(checkpoint.tokenizer.encode(after))
        said = torch.tensor(whole[-n:])
        assert value == pytest.approx(float(logits[-n:].gather(1, said[:, None]).sum()), abs=1e-3)
        assert likeliest == bool((logits[-n:].argmax(-1) == said).all())
    long = checkpoint.tokenizer.encode(" ".join(TEXTS))
    (value,) = answering.loglikelihood_rolling([SimpleNamespace(args=(" ".join(TEXTS),))], disable_tqdm=True)
    counted, at = 0.0, 0
    row = [bos, *long]
    while at < len(long):  # windows of 24 targets, the last with as much before it as fits
        stop = min(at + 24, len(long))
        begin = at if stop - at == 24 else max(stop - 24, 0)
        logits = checkpoint.model(torch.tensor([row[begin:stop]])).log_softmax(-1)[0]
        counted += float(logits[at - begin :].gather(1, torch.tensor(long[at:stop])[:, None]).sum())
        at = stop
    assert len(long) > 60 and value == pytest.approx(counted, abs=2e-3)


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_asked_is_named(asked: Any, tmp_path: Path) -> None:
    folder, checkpoint, _ = asked
    with pytest.raises(HarnessError, match="lm-eval knows no task 'chosing'; did you mean 'choosing'"):
        run_harness(checkpoint, ["chosing"], folder=folder)
    with pytest.raises(HarnessError, match="there is no folder"):
        run_harness(checkpoint, ["choosing"], folder=folder / "none")
    for option in ({"limit": 0}, {"shots": -1}, {"batch_tokens": 0}):
        with pytest.raises(HarnessError, match=f"{next(iter(option))}: .* makes no sense"):
            run_harness(checkpoint, ["choosing"], folder=folder, **option)  # type: ignore[arg-type]
    broken = {"task": "broken", "dataset_path": "json", "output_type": "multiple_choice", "test_split": "none"}
    data = {"dataset_kwargs": {"data_files": {"test": str(folder / "lines.jsonl")}}}
    (tmp_path / "broken.yaml").write_text(json.dumps(broken | data))
    with pytest.raises(HarnessError, match="lm-eval cannot ask broken: "):
        run_harness(checkpoint, ["broken"], folder=tmp_path)


def test_without_lm_eval_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("lm_eval", "lm_eval.tasks"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(HarnessError, match=r"install plait\[harness\]"):
        run_harness(SimpleNamespace(), ["any"])  # type: ignore[arg-type]
    assert main(["evaluate", "no/model", "--harness", "any"]) == 1  # said before anything is loaded
    assert "lm-eval cannot be imported" in capsys.readouterr().err
