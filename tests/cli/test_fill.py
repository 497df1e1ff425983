"""fill: candidates for each mask, likeliest first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import plait
from plait.architecture import Architecture
from plait.checkpoint import Checkpoint
from plait.cli.commands import main
from plait.text import load_tokenizer
from tests.cli.test_generate import Capture, output
from tests.generation.making import random_model
from tests.text.making import tokenizer_folder, word_piece


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random masked model with a WordPiece tokenizer."""
    folder = tmp_path_factory.mktemp("masked")
    tokenizer = load_tokenizer(tokenizer_folder(folder / "tokenizer", word_piece(), mask_token="[MASK]"))
    size = {"vocab_size": len(tokenizer), "d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 2}
    architecture = Architecture(**size, position="learned", max_length=64, head="masked")
    model = random_model(architecture).float()
    return plait.save(
        Checkpoint(architecture=architecture, model=model, tokenizer=tokenizer), folder / "saved", dialect="plait"
    )


def test_candidates_for_each_mask(masked: Path, capsys: Capture):
    text = "the [MASK] of [MASK]"
    expected = plait.fill(plait.load(masked), text, k=3)
    rows = output(capsys, "fill", masked, text, "--k", 3).splitlines()
    assert rows[0].split() == ["mask", "probability", "text"]
    assert [row.split()[0] for row in rows[2:]] == ["1"] * 3 + ["2"] * 3
    assert [row.split()[2] for row in rows[2:]] == [one.text for masks in expected for one in masks]  # type: ignore[union-attr]
    found = json.loads(output(capsys, "fill", masked, text, "--k", 3, "--format", "json"))
    assert [[one["token"] for one in masks] for masks in found] == [[one.token for one in masks] for masks in expected]  # type: ignore[union-attr]


def test_text_without_a_mask_and_a_model_without_masks_are_refused(masked: Path, forced: Path, capsys: Capture):
    assert main(["fill", str(masked), "nothing here"]) == 1
    assert "it has no mask to fill; write [MASK]" in capsys.readouterr().err
    assert main(["fill", str(forced), "a"]) == 1
    assert "fill: this decoder with head 'language' fills no masks" in capsys.readouterr().err
