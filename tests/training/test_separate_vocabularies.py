"""Pairs whose sides have a vocabulary each: trained, saved beside each other, read back, and translated with."""

from __future__ import annotations

from pathlib import Path

import pytest

import plait
from plait.text import Tokenizer
from plait.training.folder import Folder
from plait.training.recipe import RecipeError, read_recipe
from plait.training.resolve import decide, resolve
from plait.training.running import ready
from tests.training.test_softmax_over_targets import RECIPE, SOURCES, TARGETS


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.token(id) for id in range(len(tokenizer))]


def test_each_side_has_its_own(tmp_path: Path) -> None:
    text = RECIPE.replace("vocab_size = 400", "joint = false\nvocab_size = 300").replace('softmax = "targets"', "")
    (tmp_path / "recipe.toml").write_text(text)
    pairs = [f"{source}\t{target}" for source, target in zip(SOURCES, TARGETS, strict=True)]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    (tmp_path / "held.tsv").write_text("\n".join(pairs[:4]) + "\n")
    resolved = resolve(decide(read_recipe(tmp_path / "recipe.toml"), tmp_path))
    source = resolved.checkpoint.tokenizer
    assert source is not None and source.target is not None
    assert any("dog" in token for token in vocabulary(source)) and any("katze" in t for t in vocabulary(source.target))
    assert not any("katze" in token for token in vocabulary(source))
    a = resolved.architecture
    assert (a.source_vocab_size, a.vocab_size) == (len(source), len(source.target)) and not a.shares_embedding
    running = ready(resolved, Folder(tmp_path / "run"))
    assert list(running.steps())[-1].evaluation is not None
    running.finish()
    for folder in ("run/model", "run/tokenizer"):
        again = plait.text.load_tokenizer(tmp_path / folder)
        assert again is not None and again.target is not None
        assert vocabulary(again) == vocabulary(source) and vocabulary(again.target) == vocabulary(source.target)
    trained = plait.load(tmp_path / "run/model")
    (ours,) = plait.generate(resolved.checkpoint, [SOURCES[0]], max_new_tokens=8)
    (theirs,) = plait.generate(trained, [SOURCES[0]], max_new_tokens=8)
    assert ours.tokens == theirs.tokens and ours.text == theirs.text == source.target.decode(ours.tokens, True)


def test_a_tokenizer_that_is_there_is_not_taken_apart(tmp_path: Path) -> None:
    text = RECIPE.replace("vocab_size = 400", 'joint = false\ntokenizer = "elsewhere"')
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(RecipeError, match="data.joint: false is for tokenizers that are trained"):
        read_recipe(tmp_path / "recipe.toml")
