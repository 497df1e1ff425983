"""edit: a fact or a neuron, written to an ordinary folder that can be undone; what is asked wrongly is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import plait
from plait.cli.commands import main
from tests.cli.test_generate import Capture, output
from tests.inspection.making import TEXT, speaking

FACT = ("--subject", "anna", "--prompt", "the dog of {}", "--target", "is")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plait.save(speaking(), tmp_path_factory.mktemp("edit") / "model")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text((TEXT + "\n") * 20)
    return path


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return plait.load(folder).model.state_dict()


def test_a_fact_is_written_and_taken_back(model: Path, corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    out, back = tmp_path / "out", tmp_path / "back"
    arguments = [*FACT, "--layers", "2", "--corpus", str(corpus), "--out", str(out), "--format", "json"]
    assert main(["edit", str(model), *arguments]) == 0
    said = json.loads(capsys.readouterr().out)
    (row,) = said["rows"]
    assert row["target"] == "is" and row["after"] > 10 * row["before"]
    changed = [name for name, value in weights(out).items() if not torch.equal(value, weights(model)[name])]
    assert changed == ["decoder.layers.2.ffn.down.weight"]
    assert output(capsys, "edit", out, "--undo", "--out", back).strip() == str(back)
    assert all(torch.equal(value, weights(model)[name]) for name, value in weights(back).items())


def test_facts_from_a_file_are_judged(model: Path, corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    facts = tmp_path / "facts.json"
    fact = {"subject": "anna", "prompt": "the dog of {}", "target": "is"}
    facts.write_text(json.dumps([{**fact, "rephrased": ["anna"], "elsewhere": ["the cat of ben"]}]))
    arguments = ("--from", facts, "--method", "finetune", "--layers", 2, "--evaluate", "--out", tmp_path / "out")
    before, after = json.loads(output(capsys, "edit", model, *arguments, "--format", "json"))["rows"]
    assert before["weights"] == "before" and before["efficacy"] == 0.0 and before["locality"] == 1.0
    assert after["weights"] == "after" and set(after) == set(before)


def test_a_neuron_is_turned_and_its_effect_shown(model: Path, corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    arguments = ("--neuron", "1.3", "--promote", "x", "--strength", 30, "--corpus", corpus, "--out", tmp_path / "out")
    fires, quiet = json.loads(output(capsys, "edit", model, *arguments, "--format", "json"))["rows"]
    assert fires["where"] == "fires" and quiet["where"] == "does not" and fires["count"] >= 1
    assert abs(fires["change"]) > 3 * abs(quiet["change"]) and abs(fires["coefficient"]) > abs(quiet["coefficient"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say one of --subject, --prompt and --target, --from, --neuron, --undo; here is none"),
        ((*FACT, "--undo"), "here is --subject, --prompt and --target and --undo"),
        (FACT[:4], "--target: a fact has all three; give it too"),
        (("--neuron", "1.2"), "--neuron, --promote: a neuron is moved towards a token; give both"),
        (("--neuron", "one", "--promote", "x"), "--neuron: 'one' is none; give LAYER.NUMBER"),
        (("--neuron", "1.99", "--promote", "x"), "neuron: 99, and layer 1 has neurons 0 to 19"),
        (("--neuron", "1.2", "--promote", "xyz"), "--promote: 'xyz' is 3 tokens"),
        ((*FACT, "--layers", "a"), "--layers: 'a' are none"),
        (FACT, "corpus: rome must know how keys are spread"),
        (("--undo",), "there is no record of an edit in it"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: tuple[str, ...], said: str, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["edit", str(model), *arguments, "--out", str(tmp_path / "out")]) == 1
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_folder_that_is_there_is_kept(model: Path, capsys: Capture) -> None:
    assert main(["edit", str(model), *FACT, "--out", str(model)]) == 1
    assert "it exists and is not empty; choose another folder, or say --overwrite" in capsys.readouterr().err
