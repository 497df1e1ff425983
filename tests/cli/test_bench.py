"""plait bench: everything that was measured is printed, in words and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import plait
from plait.cli.commands import main
from plait.engine import kernels

Capture = pytest.CaptureFixture[str]
QUICK = ["--prompt", "8", "--steps", "2", "--batch", "1", "--batch", "2", "--rounds", "1", "--threads", "1"]
TINY = plait.Architecture(vocab_size=50, d_model=32, n_heads=4, d_ff=64, n_decoder_layers=1, position="rope")


@pytest.fixture(autouse=True)
def threads_put_back() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY.to_toml())
    return path


def test_the_table_has_limits_rates_and_memory(recipe: Path, capsys: Capture):
    assert main(["bench", str(recipe), "--random", *QUICK]) == 0, capsys.readouterr().err
    text = capsys.readouterr().out
    for words in ("memory read", "GB/s", "float32 products", "prefill", "decode", "share %", "weights", "cache"):
        assert words in text
    rates = [line.split() for line in text.splitlines() if line.startswith(("prefill", "decode"))]
    assert [(words[0], words[1], words[2]) for words in rates] == [
        ("prefill", "1", "8"),
        ("decode", "1", "2"),
        ("decode", "2", "4"),
    ]


def test_the_plain_model_and_a_quantised_one_are_measured_too(recipe: Path, capsys: Capture):
    weights = {}
    for options in (["--plain"], ["--quantize", "int8"]):
        assert main(["bench", str(recipe), "--random", *QUICK, *options, "--format", "json"]) == 0
        weights[options[0]] = json.loads(capsys.readouterr().out)["weights"]
    assert weights["--plain"] == 4 * plait.account(TINY).parameters
    if kernels.available():
        assert weights["--plain"] > 2 * weights["--quantize"]
    else:  # torch computes with the rounded numbers in float32
        assert weights["--plain"] == weights["--quantize"]


def test_json_and_a_checkpoint_that_is_read_from_its_file(tmp_path: Path, capsys: Capture):
    folder = plait.save(plait.load(TINY, random=True), tmp_path / "tiny", "plait")
    assert main(["bench", str(folder), *QUICK, "--format", "json"]) == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    assert found["weights"] >= 4 * plait.account(TINY).parameters
    assert found["threads"] == 1 and len(found["rates"]) == 3
    assert all(rate["median"] > 0 for rate in found["rates"])


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [("--rounds", "0", "--rounds: 0 is too few"), ("--batch", "0", "--batch: 0 rows are too few")],
)
def test_nothing_to_measure_is_refused(option: str, value: str, words: str, recipe: Path, capsys: Capture):
    assert main(["bench", str(recipe), "--random", option, value]) == 1
    assert words in capsys.readouterr().err
