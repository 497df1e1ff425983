"""``plait plan``: what is said of a recipe and some devices, what is refused, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait.cli.commands import main
from plait.cli.plan import bytes_of

RECIPE = """
[model]
preset = "gpt2"
n_decoder_layers = 2
n_heads = 4
d_model = 64
d_ff = 256
[data]
train = "nowhere.txt"
vocab_size = 500
length = 64
batch_rows = 16
[run]
steps = 5
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


def plan(recipe: Path, *options: str, devices: str = "2", memory: str = "80GB") -> int:
    return main(["plan", str(recipe), *options, "--devices", devices, "--device-memory", memory])


def test_what_fits_says_so_in_the_words_of_a_recipe(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(recipe) == 0
    said = capsys.readouterr().out
    assert "It fits as it is: --run.parallel data --data.micro_batches 1" in said
    assert all(word in said for word in ("weights", "gradients", "optimizer", "activations", "sent in a step", "FLOPs"))


def test_what_is_recommended_is_taken_and_fits(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(recipe, "--format", "json") == 0
    needs = json.loads(capsys.readouterr().out)["ways"][0]["said"]["needs"]
    tight = f"{needs - 1}B"
    assert plan(recipe, "--format", "json", memory=tight) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recommended"]["needs"] < needs and found["ways"][0]["said"]["needs"] == needs
    assert plan(recipe, *found["recommended"]["options"].split(), memory=tight) == 0
    assert f"It fits as it is: {found['recommended']['options']}" in capsys.readouterr().out


def test_what_fits_nowhere_says_the_least_that_would_do(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(recipe, memory="100kB") == 1
    assert "The least memory that would do is" in capsys.readouterr().out
    assert plan(recipe, "--format", "json", memory="100kB") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["recommended"] is None and not found["fits"]
    assert plan(recipe, memory=f"{found['least_memory']}B") == 0


def test_ways_that_cannot_be_say_why(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(recipe, "--optimizer.kind", "muon", devices="3") == 0
    said = capsys.readouterr().out
    assert "muon looks at whole matrices" in said and "n_heads: the decoder's 4 cannot be divided among 3" in said


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ("80", "--device-memory: '80' has no unit; say 80GB or 80GiB."),
        ("much", "--device-memory: 'much' is no amount of memory; give one as in 80GB or 79.6GiB."),
        ("80XB", "--device-memory: '80XB' is no amount of memory"),
        ("0GB", "--device-memory: '0GB' holds nothing; give more."),
    ],
)
def test_memory_that_is_none_is_refused(
    memory: str, said: str, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(recipe, memory=memory) == 1
    assert said in capsys.readouterr().err


def test_no_devices_are_refused(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(recipe, devices="0") == 1
    assert "--devices: 0 cannot train anything; give at least 1." in capsys.readouterr().err


def test_a_mistake_in_the_recipe_is_refused(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(recipe, "--run.stepz", "1") == 1
    assert "did you mean 'steps'?" in capsys.readouterr().err


def test_units() -> None:
    assert bytes_of("80GB") == 80_000_000_000 and bytes_of("1.5 GiB") == 3 << 29 and bytes_of("7b") == 7
    assert bytes_of("80gb") == bytes_of("80GB")
