"""Every recipe in recipes/ is read, fits its data, and makes its first steps: on small data of the same form, and on
its own where that is there."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import plait
from plait.training.folder import Folder
from plait.training.metrics import read_metrics
from plait.training.recipe import read_recipe, to_text
from plait.training.resolve import decide, resolve
from plait.training.running import ready
from tests.training.standing_in import write_data, write_decoder, write_encoder

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))
FROM = {"trec-minilm": write_encoder, "smollm2-lora": write_decoder, "smollm2-chat": write_decoder}
SHORT = ["--run.minutes", "none", "--run.epochs", "none", "--run.steps", "2"]
QUICK = [*SHORT, "--evaluate.every", "2", "--run.precision", "float32"]


def small(name: str, folder: Path) -> list[str]:
    """Options that leave of a recipe what the test can afford."""
    recipe = read_recipe(next(path for path in RECIPES if path.stem == name))
    options = ["--data.length", "96" if "smollm2" in name else "32"]  # a chat has a letter a token
    options += ["--data.batch_rows", "4"] if recipe.data.batch_rows else ["--data.batch_tokens", "96"]
    if recipe.evaluate.samples:
        options += ["--evaluate.samples", "0"]
    if name in FROM:
        return [*options, "--model.from", str(FROM[name](folder))]
    sizes = {"d_model": 16, "d_ff": 32, "n_heads": 2}
    layers = [key for key in recipe.model.overrides if key.endswith("_layers")]
    options += [word for key, value in sizes.items() for word in (f"--model.{key}", str(value))]
    options += [word for key in layers for word in (f"--model.{key}", "1")]
    if recipe.data.tokenizer is None:
        options += ["--data.vocab_size", "500"]
    return options


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def test_there_are_recipes():
    assert {"shakespeare-char", "multi30k-en-de", "cmn-eng", "smollm2-lora"} < {path.stem for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_short_and_reads_back_equal(path: Path, tmp_path: Path):
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 34
    recipe = read_recipe(path)
    (tmp_path / "again.toml").write_text(to_text(recipe))
    assert read_recipe(tmp_path / "again.toml") == recipe


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_makes_its_first_steps(path: Path, stand_in: Path, tmp_path: Path):
    options = [*QUICK, *small(path.stem, tmp_path)]
    recipe = decide(read_recipe(path, options), stand_in)
    running = ready(resolve(recipe), Folder(tmp_path / "run"))
    steps = list(running.steps())
    running.finish()
    assert [step.index for step in steps] == [1, 2] and all(math.isfinite(step.loss) for step in steps)
    assert steps[-1].evaluation is not None and set(recipe.evaluate.metrics) <= set(steps[-1].evaluation)
    kinds = [line["kind"] for line in read_metrics(tmp_path / "run/metrics.jsonl")]
    assert kinds.count("step") == 2 and "layers" in kinds and "evaluation" in kinds
    assert read_recipe(tmp_path / "run/recipe.toml") == recipe
    trained = plait.load(tmp_path / "run/model")
    assert trained.architecture == running.resolved.architecture and trained.tokenizer is not None
    assert (tmp_path / "run/adapter").exists() == bool(recipe.model.lora_rank)


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in RECIPES if p.stem not in FROM], ids=lambda path: path.stem)
def test_a_recipe_makes_its_first_steps_on_its_own_data(path: Path, data: Path, tmp_path: Path):
    silent = ["--evaluate.samples", "0"] if read_recipe(path).evaluate.samples else []
    recipe = decide(read_recipe(path, [*SHORT, "--evaluate.batches", "2", *silent]), data)
    running = ready(resolve(recipe), Folder(tmp_path / "run"))
    assert [step.index for step in running.steps()] == [1, 2]


@pytest.mark.slow
def test_trec_goes_on_from_minilm(data: Path, minilm: Path, tmp_path: Path):
    path = next(path for path in RECIPES if path.stem == "trec-minilm")
    recipe = decide(read_recipe(path, [*SHORT, "--model.from", str(minilm), "--evaluate.batches", "2"]), data)
    running = ready(resolve(recipe), Folder(tmp_path / "run"))
    list(running.steps())
    running.finish()
    assert plait.load(tmp_path / "run/model").labels == ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
