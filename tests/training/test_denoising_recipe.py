"""Denoising as a recipe asks for it: BART's rate where none is said, characters cut out one by one, sentences moved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plait.data.samples import Samples
from plait.training.recipe import read_recipe
from plait.training.resolve import decide, resolve
from tests.training.standing_in import ENGLISH, sentences

RECIPE = """
[model]
preset = "bart-base"
n_encoder_layers = 1
n_decoder_layers = 1
n_heads = 2
d_model = 16
d_ff = 32
[data]
train = "text.txt"
length = 64
batch_rows = 4
vocab_size = 400
[objective]
kind = "denoising"
[run]
steps = 2
"""


@pytest.mark.parametrize("tokenizer", ["train", "characters", "alphabet"])
def test_any_vocabulary_is_spoilt_at_barts_rate(tokenizer: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(". ".join(sentences(ENGLISH, 60)))
    (tmp_path / "bart.toml").write_text(RECIPE)
    options = ["--data.tokenizer", tokenizer, "--objective.permute", "--data.cache", str(tmp_path)]
    recipe = decide(read_recipe(tmp_path / "bart.toml", options), tmp_path)
    assert recipe.objective.mask_rate == 0.3
    stream = resolve(recipe).train
    assert isinstance(stream, Samples)
    (batch,) = stream.step(0)
    assert batch.source is not None and batch.source_mask is not None and batch.mask is not None
    mask = stream.objective.mask  # type: ignore[attr-defined]
    hidden = [
        int(row.sum()) - int((source[real != 0] != mask).sum())
        for row, source, real in zip(batch.mask != 0, batch.source, batch.source_mask, strict=True)
    ]
    sizes = (batch.mask != 0).sum(1)
    assert np.mean([0.15 < gone / int(size) < 0.45 for gone, size in zip(hidden, sizes, strict=True)]) == 1
