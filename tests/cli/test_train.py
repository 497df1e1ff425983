"""``plait train`` and ``plait evaluate``: what is printed and kept, what is refused before anything runs, going on."""

from __future__ import annotations

import json
import math
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.cli.commands import main
from plait.training.folder import Folder
from plait.training.metrics import read_metrics
from plait.training.recipe import read_recipe
from plait.training.running import Running
from tests.training.standing_in import ENGLISH, sentences

RECIPE = """
[model]
preset = "gpt2"
n_decoder_layers = 1
n_heads = 2
d_model = 16
d_ff = 32
max_length = 32
[data]
train = "text.txt"
valid = "valid.txt"
tokenizer = "characters"
packing = "windows"
length = 16
batch_rows = 4
[schedule]
warmup = 2
[run]
steps = 6
log_every = 2
save_every = 4
dropout = 0.1
[evaluate]
every = 3
metrics = ["loss", "bits_per_byte"]
samples = 1
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    for name, seed in (("text", 0), ("valid", 1)):
        (tmp_path / f"{name}.txt").write_text("\n".join(sentences(ENGLISH, 60, seed)))
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


def train(recipe: Path, out: str, *options: str) -> int:
    return main(["train", str(recipe), "--data", str(recipe.parent), "--out", str(recipe.parent / out), *options])


def measured(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run, without times."""
    return [
        {key: value for key, value in line.items() if key != "seconds"}
        for line in read_metrics(folder / "metrics.jsonl")
    ]


def test_a_run_is_shown_kept_and_printed(recipe: Path, capsys: pytest.CaptureFixture[str]):
    assert train(recipe, "run", "--optimizer.lr", "3e-3") == 0
    said = capsys.readouterr()
    folder = recipe.parent / "run"
    assert said.out == f"{folder}\n"
    shown = said.err
    assert "lr = 0.003" in shown and "matrix_lr" not in shown  # the resolved recipe; what nothing reads is not in it
    assert "\nstep 2/6  loss " in shown and "\nstep 3/6" not in shown
    assert "\nevaluation at step 3: loss " in shown and "(best)" in shown
    kinds = [line["kind"] for line in measured(folder)]
    assert kinds.count("step") == 6 and kinds.count("evaluation") == 2 and kinds.count("samples") == 2
    assert read_recipe(folder / "recipe.toml").optimizer.lr == 3e-3
    assert "<svg" in (folder / "report.html").read_text() and [path.name for path in (folder / "states").iterdir()]
    model = plait.load(folder / "model")
    assert isinstance(plait.generate(model, "the dog", max_new_tokens=4).text, str)


@pytest.mark.filterwarnings("default::plait.checkpoint.PlaitNotice")  # where it stopped, where it goes on
def test_an_interrupted_run_goes_on_as_if_it_had_not_stopped(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert train(recipe, "whole") == 0
    note = Running.note

    def interrupted(self: Running, step: Any, metrics: Any) -> None:
        note(self, step, metrics)
        if step.index == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Running, "note", interrupted)
        assert train(recipe, "parts") == 130
    said = capsys.readouterr().err
    advice = shlex.split(
        next(line for line in said.splitlines() if "go on with: " in line).partition("go on with: ")[2]
    )
    assert advice == [
        *("plait", "train", str(recipe), "--out", str(recipe.parent / "parts")),
        *("--data", str(recipe.parent), "--resume"),
    ]
    assert not (recipe.parent / "parts/model").exists()
    assert main(advice[1:]) == 0
    whole, parts = measured(recipe.parent / "whole"), measured(recipe.parent / "parts")
    steps = [[line for line in lines if line["kind"] in ("step", "evaluation")] for lines in (whole, parts)]
    assert steps[0] == steps[1]
    weights = [(recipe.parent / name / "model/model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]


def test_a_folder_with_a_run_is_not_touched(recipe: Path, capsys: pytest.CaptureFixture[str]):
    assert train(recipe, "run", "--run.steps", "2") == 0
    before = {path: path.read_bytes() for path in (recipe.parent / "run").rglob("*") if path.is_file()}
    assert train(recipe, "run", "--run.steps", "2") == 1
    assert "go on with it by --resume, or choose another --out" in capsys.readouterr().err
    assert train(recipe, "run", "--resume", "--run.steps", "2", "--optimizer.lr", "1") == 1
    assert "optimizer.lr: it was 0.001" in capsys.readouterr().err
    assert train(recipe, "run", "--resume", "--run.steps", "2", "--model.d_model", "32") == 1
    assert "model.d_model: it was 16" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in (recipe.parent / "run").rglob("*") if path.is_file()}


def test_a_folder_in_which_a_run_is_under_way_is_not_touched(recipe: Path, capsys: pytest.CaptureFixture[str]):
    with Folder(recipe.parent / "run").held():
        assert train(recipe, "run", "--run.steps", "1") == 1
        assert "another run is writing there; wait for it" in capsys.readouterr().err
        assert not [*(recipe.parent / "run").iterdir()]
    assert not (recipe.parent / "run").exists()  # nothing came of it
    assert train(recipe, "run", "--run.steps", "1") == 0


def test_resume_without_a_run_begins_one_aloud(recipe: Path, capsys: pytest.CaptureFixture[str]):
    assert train(recipe, "run", "--resume", "--run.steps", "1") == 0
    assert "there is no run to go on with; one is begun" in capsys.readouterr().err


def test_a_dry_run_prints_the_recipe_that_would_be_run(recipe: Path, capsys: pytest.CaptureFixture[str]):
    assert train(recipe, "run", "--dry-run", "--run.seed", "7") == 0
    (recipe.parent / "printed.toml").write_text(capsys.readouterr().out)
    printed = read_recipe(recipe.parent / "printed.toml")
    assert printed.run.seed == 7 and printed.data.train == (str((recipe.parent / "text.txt").resolve()),)
    assert not (recipe.parent / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--optimizer.learning_rate", "1"], "--optimizer.learning_rate: there is no such setting; did you mean"),
        (["--run.stepz", "1"], "did you mean 'steps'?"),
        (["--resum"], "--resum: there is no such option"),
        (["--data.train", "none.txt"], "none.txt; say where the data is with --data FOLDER or PLAIT_DATA"),
        (
            ["--objective.kind", "masked", "--data.packing", "stream", "--evaluate.metrics", "loss"],
            "objective.kind: 'masked' trains a model of kind encoder",
        ),
        (["--data.length", "64"], "data.length: rows of 64 tokens, and the model has positions for 32"),
        (["--evaluate.metrics", "bleu"], "evaluate.metrics: bleu does not measure 'causal'"),
        (["--data.valid", "[]"], "evaluate.every: there is nothing to evaluate on"),
        (["--data.tokenizer", "charcters"], "did you mean 'characters'?"),
        (["--model.vocab_size", "100"], "model.vocab_size: 100 rows do not hold the"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(
    options: list[str], said: str, recipe: Path, capsys: pytest.CaptureFixture[str]
):
    assert train(recipe, "run", *options) == 1
    shown = capsys.readouterr()
    assert said in shown.err and not shown.out and not (recipe.parent / "run").exists()


def test_evaluate_measures_what_the_run_measured(recipe: Path, capsys: pytest.CaptureFixture[str]):
    assert train(recipe, "run") == 0
    (last,) = [line for line in measured(recipe.parent / "run") if line["kind"] == "evaluation" and line["step"] == 6]
    capsys.readouterr()
    files = ["--data", str(recipe.parent / "valid.txt"), "--format", "json", "--length", "16"]
    assert main(["evaluate", str(recipe.parent / "run/model"), *files]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"loss", "perplexity", "bits_per_byte", "accuracy"}
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"])) and 0 <= found["accuracy"] <= 1
    # The same text in rows of the same length, but with the end that generation would look for
    assert found["loss"] == pytest.approx(last["loss"], rel=0.02)


def test_settings_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["settings", "optimizer"]) == 0
    assert "beta2" in capsys.readouterr().out
    assert main(["settings", "optimiser"]) == 1
    assert "there is no section of that name" in capsys.readouterr().err


def test_the_help_is_quick_and_without_torch(plait_command: Callable[..., subprocess.CompletedProcess[str]]):
    done = plait_command("train", "--help")
    assert done.returncode == 0 and "--dry-run" in done.stdout
